// Column sum 2: a block adds up 64 columns; its 64 rows of threads share the rows of the matrix.
//
// sums[i] = A[0][i] + ... + A[width - 1][i], float32, row-major. If the width is no multiple of 4, rows
// begin anywhere in a line, and words are loaded one by one.
//
// What to expect: the bytes of `column-sum`, which has a thread per column: too few threads to keep DRAM
// busy. Here 16 threads read 64 neighboring columns of a row, 16 bytes each, and 64 rows are read at once.
// At the end the partial sums of the rows of threads are added in shared memory, in halves.

constexpr int QUADS = 16, ROWS = 64;

__device__ float4 sum_of(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ float4 load_quad(const float* row, int column, int width) {
  if (width % 4 == 0) {
    return *reinterpret_cast<const float4*>(row + column);
  }
  float4 quad = make_float4(row[column], 0.0f, 0.0f, 0.0f);
  if (column + 1 < width) quad.y = row[column + 1];
  if (column + 2 < width) quad.z = row[column + 2];
  if (column + 3 < width) quad.w = row[column + 3];
  return quad;
}

extern "C" __global__ void column_sum_block(const float* A, float* sums, int width) {
  __shared__ float4 partial[ROWS][QUADS];
  int column = 4 * (blockIdx.x * QUADS + threadIdx.x), ty = threadIdx.y;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (column < width) {
#pragma unroll 4
    for (int j = ty; j < width; j += ROWS) {
      sum = sum_of(sum, load_quad(A + (size_t)j * width, column, width));
    }
  }

  partial[ty][threadIdx.x] = sum;
  for (int half = ROWS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (ty < half) {
      sum = sum_of(sum, partial[ty + half][threadIdx.x]);
      partial[ty][threadIdx.x] = sum;
    }
  }
  if (ty == 0 && column < width) {
    sums[column] = sum.x;
    if (column + 1 < width) sums[column + 1] = sum.y;
    if (column + 2 < width) sums[column + 2] = sum.z;
    if (column + 3 < width) sums[column + 3] = sum.w;
  }
}
