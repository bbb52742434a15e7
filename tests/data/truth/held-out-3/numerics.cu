// Numerical kernels: small factorizations, filters, sparse products, random numbers.

// LU without pivots of 16 x 16 matrices in shared memory: a warp per matrix.
extern "C" __global__ void factor_small(float* matrices) {
  __shared__ float tiles[4][16][17];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = lane / 16, r = lane % 16;
  float* matrix = matrices + ((size_t)blockIdx.x * 4 + warp) * 256;
  float(*tile)[17] = tiles[warp];
  for (int k = 0; k < 8; k++) tile[2 * k + half][r] = matrix[32 * k + lane];
  __syncwarp();
  for (int p = 0; p < 15; p++) {
    if (half == 0 && r > p) tile[r][p] /= tile[p][p];
    __syncwarp();
    if (r > p)
      for (int c = p + 1 + half; c < 16; c += 2) tile[r][c] -= tile[r][p] * tile[p][c];
    __syncwarp();
  }
  for (int k = 0; k < 8; k++) matrix[32 * k + lane] = tile[2 * k + half][r];
}

// A filter of 33 taps over a signal: a tile and its halo in shared memory.
extern "C" __global__ void filter_signal(const float* in, const float* taps, float* out, int n) {
  __shared__ float tile[512 + 32], weight[33];
  int first = blockIdx.x * 512;
  for (int k = threadIdx.x; k < 544; k += 256) {
    int i = first + k - 16;
    tile[k] = i >= 0 && i < n ? in[i] : 0.0f;
  }
  if (threadIdx.x < 33) weight[threadIdx.x] = taps[threadIdx.x];
  __syncthreads();
  for (int k = threadIdx.x; k < 512; k += 256) {
    float sum = 0.0f;
    for (int t = 0; t < 33; t++) sum += weight[t] * tile[k + t];
    out[first + k] = sum;
  }
}

// Philox 4 x 32, 10 rounds, and pairs of normal numbers by Box and Muller.
extern "C" __global__ void normals(float4* out, unsigned key, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned c0 = i, c1 = 0, c2 = 7, c3 = 11, k0 = key, k1 = ~key;
    for (int round = 0; round < 10; round++) {
      unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
      unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
      c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    float u = (c0 + 0.5f) * 2.3283064e-10f, v = c1 * 1.4629181e-9f;
    float w = (c2 + 0.5f) * 2.3283064e-10f, z = c3 * 1.4629181e-9f;
    float far = sqrtf(-2.0f * __logf(u)), near = sqrtf(-2.0f * __logf(w));
    float4 four;
    __sincosf(v, &four.x, &four.y);
    __sincosf(z, &four.z, &four.w);
    four.x *= far, four.y *= far, four.z *= near, four.w *= near;
    out[i] = four;
  }
}

// A sparse product in the format ELLPACK, 12 columns a row: a thread per row.
extern "C" __global__ void ell_product(const int* column, const float* value, const float* x,
                                       float* y, int rows) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float sum = 0.0f;
  for (int k = 0; k < 12; k++) sum += value[(size_t)k * rows + r] * x[column[(size_t)k * rows + r]];
  y[r] = sum;
}

// A sparse product with rows of 48 entries: a warp per row.
extern "C" __global__ void rows_by_warps(const int* column, const float* value, const float* x,
                                         float* y) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int k = lane; k < 48; k += 32) {
    size_t place = (size_t)row * 48 + k;
    sum += value[place] * x[column[place]];
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (lane == 0) y[row] = sum;
}

// A step between two FFTs: a complex matrix is multiplied by twiddle factors and transposed.
extern "C" __global__ void twiddle_transpose(const float2* in, float2* out, int n) {
  __shared__ float2 tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y0 = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += 8) {
    float2 v = in[(size_t)(y0 + r) * n + x];
    float s, c;
    sincospif(-2.0f * (float)(((long long)(y0 + r) * x) % ((long long)n * n)) / ((float)n * n), &s, &c);
    tile[r][threadIdx.x] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
  }
  __syncthreads();
  int tx = y0 + threadIdx.x, ty0 = blockIdx.x * 32;
  for (int r = threadIdx.y; r < 32; r += 8) out[(size_t)(ty0 + r) * n + tx] = tile[threadIdx.x][r];
}

// The mean of the 27 neighbours in three dimensions, from a tile with a halo.
extern "C" __global__ void smooth_3d(const float* in, float* out, int n) {
  __shared__ float tile[6][6][34];
  int x0 = blockIdx.x * 32, y0 = blockIdx.y * 4, z0 = blockIdx.z * 4;
  int own = (threadIdx.z * 4 + threadIdx.y) * 32 + threadIdx.x;
  for (int k = own; k < 6 * 6 * 34; k += 512) {
    int x = x0 + k % 34 - 1, y = y0 + k / 34 % 6 - 1, z = z0 + k / 204 - 1;
    bool inside = x >= 0 && x < n && y >= 0 && y < n && z >= 0 && z < n;
    tile[k / 204][k / 34 % 6][k % 34] = inside ? in[((size_t)z * n + y) * n + x] : 0.0f;
  }
  __syncthreads();
  float sum = 0.0f;
  for (int dz = 0; dz < 3; dz++)
    for (int dy = 0; dy < 3; dy++)
      for (int dx = 0; dx < 3; dx++)
        sum += tile[threadIdx.z + dz][threadIdx.y + dy][threadIdx.x + dx];
  out[((size_t)(z0 + threadIdx.z) * n + y0 + threadIdx.y) * n + x0 + threadIdx.x] = sum / 27.0f;
}

// Products of many pairs of 32 x 32 matrices: a block of 256 for each.
extern "C" __global__ void products_32(const float* a, const float* b, float* out) {
  __shared__ float left[32][32], right[32][32];
  size_t first = (size_t)blockIdx.x * 1024;
  int x = threadIdx.x % 32, y = threadIdx.x / 32;
  for (int k = 0; k < 4; k++) {
    left[y + 8 * k][x] = a[first + threadIdx.x + 256 * k];
    right[y + 8 * k][x] = b[first + threadIdx.x + 256 * k];
  }
  __syncthreads();
  float sum[4] = {};
  for (int k = 0; k < 32; k++)
    for (int r = 0; r < 4; r++) sum[r] += left[y + 8 * r][k] * right[k][x];
  for (int k = 0; k < 4; k++) out[first + threadIdx.x + 256 * k] = sum[k];
}
