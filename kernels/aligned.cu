// Coalescing 1: thread i of a warp reads word i of an aligned 128-byte line.
//
// b[i] = a[i], float32. LOAD selects the load: __ldca keeps lines in L1, __ldcg in L2 only.
//
// What to expect: one line and four sectors per request, all of it used: 100%. The time is that of
// moving the bytes; no change of the kernel can make this copy faster.

extern "C" __global__ void aligned(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float value = LOAD(a + i);
    b[i] = value;
  }
}
