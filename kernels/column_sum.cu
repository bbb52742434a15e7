// Column sum: each thread adds up one column of a square matrix.
//
// sums[i] = A[0][i] + ... + A[width - 1][i], float32, row-major.
//
// What to expect: the same additions and bytes as `row-sum`. But in every step a warp reads 32
// neighboring elements of one row: 4 sectors per request instead of 32, all of it used.

extern "C" __global__ void column_sum(const float* A, float* sums, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < width) {
    float sum = 0.0f;
    for (int j = 0; j < width; ++j) {
      sum += A[(size_t)j * width + i];
    }
    sums[i] = sum;
  }
}
