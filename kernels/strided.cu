// Coalescing at a stride: neighboring threads read words `stride` apart.
//
// b[i] = a[i * stride], float32.
//
// What to expect: a warp touches min(stride, 32) lines and min(4 * stride, 32) sectors: the used
// share is 1 / stride until each thread has its own sector (stride 8) or line (stride 32).
// A rule of thumb: add threadIdx.x to an index, never multiply it.

extern "C" __global__ void strided(const float* a, float* b, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float value = LOAD(a + (size_t)i * stride);
    b[i] = value;
  }
}
