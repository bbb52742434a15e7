// Coalescing at its best: each thread copies four words by one load and one store of 16 bytes.
//
// b[i] = a[i], float32. The last words, of which there are fewer than four, are copied by one thread.
//
// What to expect: the lines and sectors of `aligned`, moved by a quarter of its instructions. A request
// covers four lines of 128 bytes, and a warp has four times the bytes under way. This is the pattern of
// the copy that `memlab peaks` measures as the ceiling of DRAM.

extern "C" __global__ void copy_vectorized(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, whole = n / 4;
  if (i < whole) {
    reinterpret_cast<float4*>(b)[i] = reinterpret_cast<const float4*>(a)[i];
  } else if (i == whole) {
    for (int j = 4 * whole; j < n; ++j) {
      b[j] = a[j];
    }
  }
}
