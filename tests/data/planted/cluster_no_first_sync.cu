// A block reads the shared memory of another block of its cluster behind a barrier of its own
// threads only: the other block may not have stored its values yet.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void __cluster_dims__(2) swapped(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = a[i];  // BUG racecheck: RAW
#ifdef FIXED
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#else
  __syncthreads();
#endif
  const float* other = (const float*)__cluster_map_shared_rank(s, __clusterRelativeBlockRank() ^ 1);
  b[i] = other[t];  // BUG racecheck: RAW
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
