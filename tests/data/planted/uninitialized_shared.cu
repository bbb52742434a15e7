// A sum over a block whose threads behind the last element leave their place in shared memory as
// it was.
//
// launch: --grid 2 --block 128 --arg in:f32[200] --arg out:f32[2] --arg i32=200
__global__ void sum(const float* a, float* sums, int n) {
  __shared__ float s[128];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i < n) s[t] = a[i];
#ifdef FIXED
  else s[t] = 0;
#endif
  for (int d = 64; d > 0; d /= 2) {
    __syncthreads();
    if (t < d) {
      s[t] += s[t + d];  // BUG initcheck: uninitialized read
    }
  }
  if (t == 0) sums[blockIdx.x] = s[0];
}
