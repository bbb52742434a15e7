// Two steps of smoothing by one block, where the first leaves its result in the array that the
// launch gives as an input. The kernel may: its parameter is no pointer to const.
//
// launch: --grid 1 --block 64 --arg in:f32[64] --arg out:f32[64]
// beyond compute-sanitizer: it knows no inputs
__global__ void smooth(float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  float once = (s[t] + s[(t + 1) % 64]) / 2;
#ifdef FIXED
  __syncthreads();
  s[t] = once;
#else
  a[t] = once;  // BUG memcheck: not writable
#endif
  __syncthreads();
  b[t] = (once + s[(t + 1) % 64]) / 2;
}
