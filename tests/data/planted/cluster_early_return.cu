// A block behind the last element returns before the barriers of its cluster that the others wait
// at.
//
// launch: --grid 4 --block 64 --arg in:f32[192] --arg out:f32[192] --arg i32=192
__global__ void __cluster_dims__(2) summed(const float* a, float* b, int n) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
#ifndef FIXED
  if (i >= n) return;
#endif
  s[t] = i < n ? a[i] : 0;
  __cluster_barrier_arrive();
  __cluster_barrier_wait();  // BUG synccheck: cluster barrier not reached
  const float* first = (const float*)__cluster_map_shared_rank(s, 0);
  if (i < n) b[i] = s[t] + first[t];
  __cluster_barrier_arrive();
  __cluster_barrier_wait();  // BUG synccheck: cluster barrier not reached
}
