// A barrier inside a loop over the elements, which the threads behind the last element leave a turn
// earlier than the others.
//
// launch: --grid 1 --block 64 --arg in:f32[100] --arg out:f32[100] --arg i32=100
__global__ void neighbours(const float* a, float* b, int n) {
  __shared__ float s[64];
  int t = threadIdx.x;
#ifdef FIXED
  for (int first = 0; first < n; first += blockDim.x) {
    int i = first + t;
    s[t] = i < n ? a[i] : 0;
    __syncthreads();
    if (i < n) b[i] = s[t ? t - 1 : 0];
    __syncthreads();
  }
#else
  for (int i = t; i < n; i += blockDim.x) {
    s[t] = a[i];
    __syncthreads();  // BUG synccheck: barrier not reached
    b[i] = s[t ? t - 1 : 0];
    __syncthreads();  // BUG synccheck: barrier not reached
  }
#endif
}
