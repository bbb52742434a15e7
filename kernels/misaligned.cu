// Coalescing 3: the threads of a warp read consecutive words that start inside a line.
//
// b[i] = a[i + offset], float32.
//
// What to expect: two lines for each request. Where whole lines move, half of what moves is used
// (50%, what lessons on early GPUs give). Since Maxwell 32-byte sectors move, five instead of
// four: 80%; and the neighbouring warp soon reads the rest, from L1.

extern "C" __global__ void misaligned(const float* a, float* b, int n, int offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float value = LOAD(a + i + offset);
    b[i] = value;
  }
}
