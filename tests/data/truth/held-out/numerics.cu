// Linear algebra, transforms and simulation.

#include <cuda_fp16.h>
#include <mma.h>

// A sparse matrix of coordinates times a vector, by atomics.
extern "C" __global__ void coo_product(const int* row, const int* column, const float* value,
                                       const float* x, float* y, int entries) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < entries) atomicAdd(&y[row[e]], value[e] * x[column[e]]);
}

// A sparse matrix times 32 columns: a warp per row, a lane per column.
extern "C" __global__ void csr_columns(const int* start, const int* column, const float* value,
                                       const float* b, float* c, int rows) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int e = start[row]; e < start[row + 1]; e++) sum += value[e] * b[column[e] * 32 + lane];
  c[row * 32 + lane] = sum;
}

// The transposed matrix times a vector: a block's partial sums of 128 rows, by atomics.
extern "C" __global__ void product_transposed(const float* a, const float* x, float* y,
                                              int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * 128;
  float sum = 0.0f;
#pragma unroll 4
  for (int r = 0; r < 128; r++) sum += a[(size_t)(first + r) * columns + c] * x[first + r];
  atomicAdd(&y[c], sum);
}

// Systems of 8 unknowns, each solved by one thread without pivots.
extern "C" __global__ void solve_small(const float* a, const float* b, float* x, int systems) {
  int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= systems) return;
  float m[8][9];
#pragma unroll
  for (int r = 0; r < 8; r++) {
#pragma unroll
    for (int c = 0; c < 8; c++) m[r][c] = a[(size_t)(r * 8 + c) * systems + s] + (r == c ? 8 : 0);
    m[r][8] = b[(size_t)r * systems + s];
  }
#pragma unroll
  for (int k = 0; k < 8; k++) {
    float inverse = 1.0f / m[k][k];
#pragma unroll
    for (int r = k + 1; r < 8; r++) {
      float factor = m[r][k] * inverse;
#pragma unroll
      for (int c = k; c < 9; c++) m[r][c] -= factor * m[k][c];
    }
  }
#pragma unroll
  for (int r = 7; r >= 0; r--) {
    float sum = m[r][8];
#pragma unroll
    for (int c = r + 1; c < 8; c++) sum -= m[r][c] * m[c][8];
    m[r][8] = sum / m[r][r];
    x[(size_t)r * systems + s] = m[r][8];
  }
}

// Walsh and Hadamard's transform of 1024 elements by 128 threads: in registers, by shuffles, and
// through shared memory.
extern "C" __global__ void hadamard(const float* in, float* out) {
  __shared__ float whole[1024];
  int t = threadIdx.x;
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; k++) v[k] = in[(size_t)blockIdx.x * 1024 + t * 8 + k];
#pragma unroll
  for (int h = 1; h < 8; h *= 2)
#pragma unroll
    for (int k = 0; k < 8; k++)
      if (!(k & h)) {
        float a = v[k], b = v[k + h];
        v[k] = a + b;
        v[k + h] = a - b;
      }
#pragma unroll
  for (int h = 1; h < 32; h *= 2)
#pragma unroll
    for (int k = 0; k < 8; k++) {
      float other = __shfl_xor_sync(~0u, v[k], h);
      v[k] = t & h ? other - v[k] : v[k] + other;
    }
#pragma unroll
  for (int k = 0; k < 8; k++) whole[k * 128 + t] = v[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 8; k++) {
    int lane = t % 32;
    float a = whole[k * 128 + lane], b = whole[k * 128 + 32 + lane];
    float c = whole[k * 128 + 64 + lane], d = whole[k * 128 + 96 + lane];
    int warp = t / 32;
    float ab = warp & 1 ? a - b : a + b, cd = warp & 1 ? c - d : c + d;
    out[(size_t)blockIdx.x * 1024 + t * 8 + k] = warp & 2 ? ab - cd : ab + cd;
  }
}

// A pass of radix 4 of a long transform, from one array to another.
extern "C" __global__ void fft_radix_4(const float2* in, float2* out, int quarter, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= quarter) return;
  int k = i % stride;
  float sine, cosine;
  sincospif(-0.5f * k / stride, &sine, &cosine);
  float2 v[4], w = make_float2(1.0f, 0.0f);
#pragma unroll
  for (int p = 0; p < 4; p++) {
    float2 u = in[i + p * quarter];
    v[p] = make_float2(u.x * w.x - u.y * w.y, u.x * w.y + u.y * w.x);
    w = make_float2(w.x * cosine - w.y * sine, w.x * sine + w.y * cosine);
  }
  float2 a = make_float2(v[0].x + v[2].x, v[0].y + v[2].y);
  float2 b = make_float2(v[0].x - v[2].x, v[0].y - v[2].y);
  float2 c = make_float2(v[1].x + v[3].x, v[1].y + v[3].y);
  float2 d = make_float2(v[1].y - v[3].y, v[3].x - v[1].x);
  float2* to = out + (i - k) * 4 + k;
  to[0] = make_float2(a.x + c.x, a.y + c.y);
  to[stride] = make_float2(b.x + d.x, b.y + d.y);
  to[2 * stride] = make_float2(a.x - c.x, a.y - c.y);
  to[3 * stride] = make_float2(b.x - d.x, b.y - d.y);
}

// Prices of options by random walks; each thread has a generator.
extern "C" __global__ void random_walks(float* price, int steps) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = t * 747796405u + 2891336453u;
  float log_price = 0.0f;
  for (int s = 0; s < steps; s++) {
    float radius = 0.0f;
    for (int k = 0; k < 2; k++) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      float u = (state >> 8) * 5.9604645e-8f + 2.9802322e-8f;
      radius = k ? radius * __cosf(6.2831853f * u) : sqrtf(-2.0f * __logf(u));
    }
    log_price += 0.001f + 0.02f * radius;
  }
  price[t] = fmaxf(100.0f * __expf(log_price) - 100.0f, 0.0f);
}

// Queries go down a search tree that lies in an array, level by level.
extern "C" __global__ void search_tree(const int* tree, const int* query, int* out, int levels,
                                       int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int q = query[i], node = 1;
  for (int level = 0; level < levels; level++) node = 2 * node + (q >= tree[node]);
  out[i] = node;
}

// Halves with sums in float and no tensor cores: tiles of 32 x 32.
extern "C" __global__ void product_half_tiled(const __half* a, const __half* b, float* c, int n) {
  __shared__ __half ta[32][32], tb[32][32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  float sum = 0.0f;
  for (int k = 0; k < n; k += 32) {
    ta[threadIdx.y][threadIdx.x] = a[y * n + k + threadIdx.x];
    tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + x];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 32; j++) {
      sum += __half2float(ta[threadIdx.y][j]) * __half2float(tb[j][threadIdx.x]);
    }
    __syncthreads();
  }
  c[y * n + x] = sum;
}

// A tensor-core product whose negative results become 0: a warp per 32 x 32.
extern "C" __global__ void wmma_relu(const __half* a, const __half* b, float* c, int n) {
  using namespace nvcuda::wmma;
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, across = n / 32;
  int row = warp / across * 32, column = warp % across * 32;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa[2];
  fragment<matrix_b, 16, 16, 16, __half, row_major> fb[2];
  fragment<accumulator, 16, 16, 16, float> sum[2][2];
  for (int i = 0; i < 4; i++) fill_fragment(sum[i / 2][i % 2], 0.0f);
  for (int k = 0; k < n; k += 16) {
    for (int i = 0; i < 2; i++) {
      load_matrix_sync(fa[i], a + (row + 16 * i) * n + k, n);
      load_matrix_sync(fb[i], b + k * n + column + 16 * i, n);
    }
    for (int i = 0; i < 4; i++) {
      mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
    }
  }
  for (int i = 0; i < 4; i++) {
    for (int e = 0; e < sum[0][0].num_elements; e++) {
      sum[i / 2][i % 2].x[e] = fmaxf(sum[i / 2][i % 2].x[e], 0.0f);
    }
    store_matrix_sync(c + (row + 16 * (i / 2)) * n + column + 16 * (i % 2), sum[i / 2][i % 2], n,
                      mem_row_major);
  }
}
