// The kernels whose counters an NVIDIA H200 gave; compiled there by NVRTC 13.0 with -std=c++17 for sm_90.
extern "C" {

__global__ void naive(const float* M, const float* N, float* P, int w) {
  int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < w && c < w) {
    float v = 0.f;
    for (int k = 0; k < w; ++k) v += M[r * w + k] * N[k * w + c];
    P[r * w + c] = v;
  }
}

#define TILED(T)                                                                      \
  __global__ void tiled##T(const float* M, const float* N, float* P, int w) {       \
    __shared__ float a[T][T], b[T][T];                                                \
    int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * T + ty, c = blockIdx.x * T + tx; \
    float v = 0.f;                                                                    \
    for (int p = 0; p < (w + T - 1) / T; ++p) {                                       \
      a[ty][tx] = (r < w && p * T + tx < w) ? M[r * w + p * T + tx] : 0.f;            \
      b[ty][tx] = (c < w && p * T + ty < w) ? N[(p * T + ty) * w + c] : 0.f;          \
      __syncthreads();                                                                \
      for (int k = 0; k < T; ++k) v += a[ty][k] * b[k][tx];                           \
      __syncthreads();                                                                \
    }                                                                                 \
    if (r < w && c < w) P[r * w + c] = v;                                             \
  }
TILED(8)
TILED(16)
TILED(32)

__global__ void row_sum(const float* A, float* s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = 0.f; for (int j = 0; j < n; ++j) v += A[(size_t)i * n + j]; s[i] = v; }
}
__global__ void column_sum(const float* A, float* s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = 0.f; for (int j = 0; j < n; ++j) v += A[(size_t)j * n + i]; s[i] = v; }
}
__global__ void copy(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[i];
}
// Coalescing examples: a warp reads 32 4-byte words
__global__ void permuted(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; int l = i & 31, w = i & ~31;
  if (i < n) b[i] = a[w + ((l * 7) & 31)];
}
__global__ void misaligned(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[i + 30];
}
__global__ void broadcast(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[(i >> 5) * 32];
}
__global__ void scattered(const float* a, const int* idx, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[idx[i]];
}
__global__ void scattered_cg(const float* a, const int* idx, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = __ldcg(a + idx[i]);
}
__global__ void strided(const float* a, float* b, int n, int s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[(size_t)i * s];
}
__global__ void transpose_naive(const float* a, float* b, int w) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) b[x * w + y + j] = a[(y + j) * w + x];
}
__global__ void transpose_shared(const float* a, float* b, int w) {
  __shared__ float t[32][32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) b[(y + j) * w + x] = t[threadIdx.x][threadIdx.y + j];
}
__global__ void transpose_padded(const float* a, float* b, int w) {
  __shared__ float t[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) b[(y + j) * w + x] = t[threadIdx.x][threadIdx.y + j];
}
__global__ void blur(const float* in, float* out, int w, int h) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (c < w && r < h) {
    float v = 0.f; int n = 0;
    for (int dr = -1; dr < 2; ++dr) for (int dc = -1; dc < 2; ++dc) {
      int y = r + dr, x = c + dc;
      if (y > -1 && y < h && x > -1 && x < w) { v += in[y * w + x]; ++n; }
    }
    out[r * w + c] = v / n;
  }
}
__global__ void bank2(const float* a, float* b) {
  __shared__ float s[1024]; int t = threadIdx.x; s[t] = a[blockIdx.x * 1024 + t]; __syncthreads();
  b[blockIdx.x * 1024 + t] = s[(t * 2) & 1023];
}
__global__ void bank32(const float* a, float* b) {
  __shared__ float s[1024]; int t = threadIdx.x; s[t] = a[blockIdx.x * 1024 + t]; __syncthreads();
  b[blockIdx.x * 1024 + t] = s[(t * 32 + (t >> 5)) & 1023];
}
}
