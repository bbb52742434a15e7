// A block reads the shared memory of the other block of its cluster behind a barrier at which its
// threads arrive `.relaxed`: they wait for each other, but what they stored need not be seen.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void __cluster_dims__(2) swapped(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = a[i];  // BUG racecheck: RAW
#ifdef FIXED
  __cluster_barrier_arrive();
#else
  __cluster_barrier_arrive_relaxed();
#endif
  __cluster_barrier_wait();
  const float* other = (const float*)__cluster_map_shared_rank(s, __clusterRelativeBlockRank() ^ 1);
  b[i] = other[t];  // BUG racecheck: RAW
  __cluster_barrier_arrive_relaxed();  // which only keeps the other block from ending
  __cluster_barrier_wait();
}
