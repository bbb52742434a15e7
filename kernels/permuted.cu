// Coalescing 2: the threads of a warp read the words of an aligned line in another order.
//
// b[i] = a[32 * (i / 32) + 7 * i % 32], float32; 7 and 32 have no common factor, so every word of
// the line is read once.
//
// What to expect: 100%, like `aligned`. The order within a line costs nothing: the hardware moves the
// sectors that a warp touches, whichever thread touches them.

extern "C" __global__ void permuted(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = i & 31, line = i & ~31;
  if (i < n) {
    float value = LOAD(a + line + ((lane * 7) & 31));
    b[i] = value;
  }
}
