// The guard of the last elements encloses a barrier, which the threads behind the last element
// never reach.
//
// launch: --grid 2 --block 64 --arg in:f32[112] --arg out:f32[112] --arg i32=112
__global__ void neighbours(const float* a, float* b, int n) {
  __shared__ float s[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
#ifdef FIXED
  s[t] = i < n ? a[i] : 0;
  __syncthreads();
  if (i < n) b[i] = s[t] + s[t ? t - 1 : 0];
#else
  if (i < n) {
    s[t] = a[i];
    __syncthreads();  // BUG synccheck: barrier not reached
    b[i] = s[t] + s[t ? t - 1 : 0];
  }
#endif
}
