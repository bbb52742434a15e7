// Kernels of the kinds that collections of loops have, as a compiler or a beginner makes them.

// A matrix times a vector, a thread per row.
extern "C" __global__ void rows_by_threads(const float* a, const float* x, float* out, int rows,
                                           int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  out[i] = 0;
  for (int j = 0; j < columns; j++) out[i] += a[i * columns + j] * x[j];
}

// Correlations of the columns of a matrix: a thread per column goes through the later ones.
extern "C" __global__ void correlate(float* out, const float* data, int columns, int rows) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= columns - 1) return;
  out[j * columns + j] = 1.0f;
  for (int k = j + 1; k < columns; k++) {
    out[j * columns + k] = 0.0f;
    for (int i = 0; i < rows; i++)
      out[j * columns + k] += data[i * columns + j] * data[i * columns + k];
    out[k * columns + j] = out[j * columns + k];
  }
}

// A step of the magnetic field in two dimensions.
extern "C" __global__ void field_step(const float* ex, const float* ey, float* hz, int nx, int ny) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < nx && j < ny)
    hz[i * ny + j] -= 0.7f * (ex[i * (ny + 1) + j + 1] - ex[i * (ny + 1) + j] +
                              ey[(i + 1) * ny + j] - ey[i * ny + j]);
}

// The length of a column, computed by one thread.
extern "C" __global__ void column_length(const float* a, float* r, int k, int rows, int columns) {
  if (blockIdx.x * blockDim.x + threadIdx.x == 0) {
    float sum = 0.0f;
    for (int i = 0; i < rows; i++) sum += a[i * columns + k] * a[i * columns + k];
    r[k * columns + k] = sqrtf(sum);
  }
}

// A column's part along another one, taken from it: a thread per column.
extern "C" __global__ void project_columns(float* a, float* r, const float* q, int k, int rows,
                                           int columns) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j <= k || j >= columns) return;
  r[k * columns + j] = 0.0f;
  for (int i = 0; i < rows; i++) r[k * columns + j] += q[i * columns + k] * a[i * columns + j];
  for (int i = 0; i < rows; i++) a[i * columns + j] -= q[i * columns + k] * r[k * columns + j];
}

// A matrix times its transpose, added: a thread per element, both operands along rows.
extern "C" __global__ void rank_update(float alpha, float beta, const float* a, float* c, int n,
                                       int m) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= n) return;
  c[i * n + j] *= beta;
  for (int k = 0; k < m; k++) c[i * n + j] += alpha * a[i * m + k] * a[j * m + k];
}

// One plane of a stencil through a volume, eleven points.
extern "C" __global__ void stencil_plane(const float* a, float* b, int i, int nj, int nk) {
  int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (j < 1 || k < 1 || j >= nj - 1 || k >= nk - 1) return;
  const float *low = a + (i - 1) * nj * nk + j * nk + k, *on = low + nj * nk, *up = on + nj * nk;
  b[i * nj * nk + j * nk + k] =
      2.0f * low[-nk - 1] + 4.0f * up[-nk - 1] + 5.0f * low[-1] + 7.0f * up[-1] -
      8.0f * low[nk - 1] + 10.0f * up[nk - 1] - 3.0f * on[-nk] + 6.0f * on[0] - 9.0f * on[nk] +
      2.0f * low[-nk + 1] + 4.0f * up[nk + 1];
}

// Two vectors from one matrix: a thread per column, all rows.
extern "C" __global__ void columns_by_threads(const float* a, const float* r, float* s, int rows,
                                              int columns) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  s[j] = 0.0f;
  for (int i = 0; i < rows; i++) s[j] += r[i] * a[i * columns + j];
}

// A product with tiles of 64 by 64 by 8, eight elements of a column for each thread.
extern "C" __global__ void product_columns(int m, int n, int k, float alpha, const float* a,
                                           const float* b, float beta, float* c) {
  __shared__ float tile_a[64 * 8], tile_b[8 * 64];
  int column = threadIdx.x % 64, row = threadIdx.x / 64;
  a += blockIdx.y * 64 * k, b += blockIdx.x * 64, c += blockIdx.y * 64 * n + blockIdx.x * 64;
  float sum[8] = {0.0f};
  for (int first = 0; first < k; first += 8) {
    tile_a[threadIdx.x] = a[threadIdx.x / 8 * k + threadIdx.x % 8];
    tile_b[threadIdx.x] = b[row * n + column];
    __syncthreads();
    a += 8, b += 8 * n;
    for (int i = 0; i < 8; i++) {
      float from_b = tile_b[i * 64 + column];
      for (int r = 0; r < 8; r++) sum[r] += tile_a[(row * 8 + r) * 8 + i] * from_b;
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; r++) {
    float* to = c + (row * 8 + r) * n + column;
    *to = alpha * sum[r] + beta * *to;
  }
}

// A product with tiles of 128 by 128 by 8, 8 by 8 elements a thread, A transposed on its way in.
extern "C" __global__ void product_vectors(int m, int n, int k, float alpha, float* a, float* b,
                                           float beta, float* c) {
  __shared__ float tile_a[8 * 128], tile_b[8 * 128];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  a += blockIdx.y * 128 * k, b += blockIdx.x * 128, c += blockIdx.y * 128 * n + blockIdx.x * 128;
  int ya = threadIdx.x / 2, xa = threadIdx.x % 2 * 4, yb = threadIdx.x / 32;
  int xb = threadIdx.x % 32 * 4;
  float sum[64] = {0.0f}, from_a[8], from_b[8];
  for (int first = 0; first < k; first += 8) {
    float4 four = *(float4*)&a[ya * k + xa];
    tile_a[xa * 128 + ya] = four.x, tile_a[(xa + 1) * 128 + ya] = four.y;
    tile_a[(xa + 2) * 128 + ya] = four.z, tile_a[(xa + 3) * 128 + ya] = four.w;
    *(float4*)&tile_b[yb * 128 + xb] = *(float4*)&b[yb * n + xb];
    __syncthreads();
    a += 8, b += 8 * n;
    for (int i = 0; i < 8; i++) {
      for (int r = 0; r < 8; r++) from_a[r] = tile_a[i * 128 + ty * 8 + r];
      for (int r = 0; r < 8; r++) from_b[r] = tile_b[i * 128 + tx * 8 + r];
      for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) sum[y * 8 + x] += from_a[y] * from_b[x];
    }
    __syncthreads();
  }
  for (int y = 0; y < 8; y++)
    for (int x = 0; x < 8; x += 4) {
      float4* to = (float4*)&c[(ty * 8 + y) * n + tx * 8 + x];
      float4 old = *to;
      old.x = alpha * sum[y * 8 + x] + beta * old.x;
      old.y = alpha * sum[y * 8 + x + 1] + beta * old.y;
      old.z = alpha * sum[y * 8 + x + 2] + beta * old.z;
      old.w = alpha * sum[y * 8 + x + 3] + beta * old.w;
      *to = old;
    }
}
