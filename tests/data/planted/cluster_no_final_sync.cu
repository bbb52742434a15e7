// Blocks of a cluster read each other's shared memory, and a block may end before the other one has
// read its values: no barrier of the cluster lies behind the reads.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void __cluster_dims__(2) swapped(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = a[i];
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  const float* other = (const float*)__cluster_map_shared_rank(s, __clusterRelativeBlockRank() ^ 1);
  b[i] = other[t];  // BUG memcheck: ended block
#ifdef FIXED
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#endif
}
