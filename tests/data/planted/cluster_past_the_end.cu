// A block reads behind the array of another block of its cluster.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void __cluster_dims__(2) shifted(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = a[i];
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  const float* other = (const float*)__cluster_map_shared_rank(s, __clusterRelativeBlockRank() ^ 1);
#ifdef FIXED
  b[i] = other[(t + 1) % 64];
#else
  b[i] = other[t + 1];  // BUG memcheck: out of bounds
#endif
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
