// Coalescing, the rest: neighbouring threads read words `stride` apart.
//
// b[i] = a[i * stride], float32.
//
// What to expect: a warp touches min(stride, 32) lines and min(4 * stride, 32) sectors: the share
// used is 1 / stride until each thread has a sector (stride 8) or a line (stride 32) of its own.
// The rule of thumb: threadIdx.x may be added to an index, never multiplied.

extern "C" __global__ void strided(const float* a, float* b, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float value = LOAD(a + (size_t)i * stride);
    b[i] = value;
  }
}
