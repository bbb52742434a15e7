// A block stores what the other block of its cluster reads between the two halves of the barrier of
// the cluster: the barrier orders only what lies before the arrival.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void __cluster_dims__(2) swapped(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
#ifdef FIXED
  s[t] = a[i];
  __cluster_barrier_arrive();
#else
  __cluster_barrier_arrive();
  s[t] = a[i];  // BUG racecheck: RAW
#endif
  __cluster_barrier_wait();
  const float* other = (const float*)__cluster_map_shared_rank(s, __clusterRelativeBlockRank() ^ 1);
  b[i] = other[t];  // BUG racecheck: RAW
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
