// Corner turning 0: a matrix product whose second operand is stored column by column.
//
// P (m x n) = M (m x k) * N (k x n), float32, any sizes; M and P row-major, N column-major: element
// (i, column) is N[column * k + i].
//
// What to expect: neighboring threads need neighboring columns of N, which are k words apart: a
// request takes as many sectors as the block is wide, instead of 4 for a whole warp. The loop is
// that of `naive`; only the layout of N differs.

extern "C" __global__ void matmul_column_major(const float* M, const float* N, float* P, int m,
                                               int k, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int column = blockIdx.x * blockDim.x + threadIdx.x;

  if (row < m && column < n) {
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
      sum += M[row * k + i] * N[column * k + i];
    }
    P[row * n + column] = sum;
  }
}
