// Threads behind the last element return before a barrier that the others wait at.
//
// launch: --grid 2 --block 64 --arg in:f32[100] --arg out:f32[100] --arg i32=100
__global__ void reversed(const float* a, float* b, int n) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
#ifndef FIXED
  if (i >= n) return;
#endif
  int last = min((int)blockDim.x, n - (int)(blockIdx.x * blockDim.x)) - 1;
  if (t <= last) s[t] = a[i];
  __syncthreads();  // BUG synccheck: barrier not reached
  if (t <= last) b[i] = s[last - t];
}
