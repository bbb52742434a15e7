// A block reads more elements of the shared memory of another block of its cluster than that one
// has stored.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void __cluster_dims__(2) swapped(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
#ifdef FIXED
  s[t] = a[i];
#else
  if (t < 48) s[t] = a[i];
#endif
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  const float* other = (const float*)__cluster_map_shared_rank(s, __clusterRelativeBlockRank() ^ 1);
  b[i] = other[63 - t];  // BUG initcheck: uninitialized read
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
