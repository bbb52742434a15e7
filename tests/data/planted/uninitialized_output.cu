// A sum into an array that nobody set to zero.
//
// launch: --grid 2 --block 64 --arg in:f32[128] --arg out:f32[128]
__global__ void accumulate(const float* a, float* b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  b[i] = 0;
#endif
  b[i] += 2 * a[i];  // BUG initcheck: uninitialized read
}
