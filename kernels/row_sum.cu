// Row sum: each thread adds up one row of a square matrix.
//
// sums[i] = A[i][0] + ... + A[i][width - 1], float32, row-major.
//
// What to expect: in every step the 32 threads of a warp read from 32 rows: 32 sectors per request,
// of whose 32 bytes 4 are used at once. The other bytes serve the next seven steps if L1 holds them
// until then; 256 threads times one sector just fit. Compare `column-sum`.

extern "C" __global__ void row_sum(const float* A, float* sums, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < width) {
    float sum = 0.0f;
    for (int j = 0; j < width; ++j) {
      sum += A[(size_t)i * width + j];
    }
    sums[i] = sum;
  }
}
