// Coalescing 3: the threads of a warp read consecutive words that start inside a line.
//
// b[i] = a[i + offset], float32.
//
// What to expect: two lines per request. If whole lines are moved, half of the bytes are used (50%,
// as lessons on early GPUs say). Since Maxwell the unit is a sector of 32 bytes, and five are moved
// instead of four: 80%; the neighboring warp soon reads the rest, from L1.

extern "C" __global__ void misaligned(const float* a, float* b, int n, int offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float value = LOAD(a + i + offset);
    b[i] = value;
  }
}
