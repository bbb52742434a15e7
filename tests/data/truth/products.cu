// Matrix products on the FP32 pipe: C = A B, all row-major.

extern "C" __global__ void product_naive(const float* a, const float* b, float* c, int m, int n,
                                         int k) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

extern "C" __global__ void product_tiled(const float* a, const float* b, float* c, int m, int n,
                                         int k) {
  __shared__ float left[32][32], right[32][32];
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0.0f;
  for (int first = 0; first < k; first += 32) {
    left[threadIdx.y][threadIdx.x] = a[row * k + first + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < 32; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// The same with the inner loop kept as a loop: no loads can be merged or moved ahead.
extern "C" __global__ void product_rolled(const float* a, const float* b, float* c, int m, int n,
                                          int k) {
  __shared__ float left[16][16], right[16][16];
  int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  float sum = 0.0f;
#pragma unroll 1
  for (int first = 0; first < k; first += 16) {
    left[threadIdx.y][threadIdx.x] = a[row * k + first + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * n + column];
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// 64 x 64 a block of 256 threads, 4 x 4 a thread.
extern "C" __global__ void product_registers(const float* a, const float* b, float* c, int m,
                                             int n, int k) {
  __shared__ float left[16][64 + 4], right[16][64];
  int t = threadIdx.x, tx = t % 16, ty = t / 16;
  int row = blockIdx.y * 64, column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int first = 0; first < k; first += 16) {
    float4 v = *reinterpret_cast<const float4*>(a + (row + t / 4) * k + first + t % 4 * 4);
    left[t % 4 * 4 + 0][t / 4] = v.x;
    left[t % 4 * 4 + 1][t / 4] = v.y;
    left[t % 4 * 4 + 2][t / 4] = v.z;
    left[t % 4 * 4 + 3][t / 4] = v.w;
    *reinterpret_cast<float4*>(&right[ty][tx * 4]) =
        *reinterpret_cast<const float4*>(b + (first + ty) * n + column + tx * 4);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++) {
      float x[4], y[4];
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] = left[i][ty * 4 + j], y[j] = right[i][tx * 4 + j];
#pragma unroll
      for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int q = 0; q < 4; q++) sum[p][q] += x[p] * y[q];
      }
    }
    __syncthreads();
  }
  for (int p = 0; p < 4; p++) {
    for (int q = 0; q < 4; q++) c[(row + ty * 4 + p) * n + column + tx * 4 + q] = sum[p][q];
  }
}

// 128 x 128 a block; each of eight warps has 64 x 32, a thread 8 x 8; the inner loop stays rolled.
extern "C" __global__ void __launch_bounds__(256)
    product_warp_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float left[8][128], right[8][128];
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  int row = blockIdx.y * 128, column = blockIdx.x * 128;
  int y0 = warp / 4 * 64 + lane / 4 * 8, x0 = warp % 4 * 32 + lane % 4 * 8;
  float sum[8][8] = {};
#pragma unroll 1
  for (int first = 0; first < k; first += 8) {
    for (int i = t; i < 1024; i += 256) {
      left[i % 8][i / 8] = a[(row + i / 8) * k + first + i % 8];
      right[i / 128][i % 128] = b[(first + i / 128) * n + column + i % 128];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
      float x[8], y[8];
#pragma unroll
      for (int j = 0; j < 8; j++) y[j] = left[i][y0 + j], x[j] = right[i][x0 + j];
#pragma unroll
      for (int p = 0; p < 8; p++) {
#pragma unroll
        for (int q = 0; q < 8; q++) sum[p][q] += y[p] * x[q];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int p = 0; p < 8; p++) {
#pragma unroll
    for (int q = 0; q < 8; q++) c[(row + y0 + p) * n + column + x0 + q] = sum[p][q];
  }
}

// Matrix times vector, a warp per row.
extern "C" __global__ void product_vector(const float4* a, const float4* x, float* y, int rows,
                                          int quads) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = lane; i < quads; i += 32) {
    float4 p = a[(size_t)row * quads + i], q = x[i];
    sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane == 0) y[row] = sum;
}

// Many products of 16 x 16, a block of 256 threads each.
extern "C" __global__ void product_batched(const float* a, const float* b, float* c) {
  __shared__ float left[16][16], right[16][17];
  int x = threadIdx.x, y = threadIdx.y, i = blockIdx.x * 256 + y * 16 + x;
  left[y][x] = a[i];
  right[y][x] = b[i];
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 16; j++) sum += left[y][j] * right[j][x];
  c[i] = sum;
}

extern "C" __global__ void product_double(const double* a, const double* b, double* c, int m,
                                          int n, int k) {
  __shared__ double left[16][16], right[16][16];
  int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  double sum = 0.0;
  for (int first = 0; first < k; first += 16) {
    left[threadIdx.y][threadIdx.x] = a[row * k + first + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
