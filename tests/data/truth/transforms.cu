// Transposes, permutations and Fourier transforms.

extern "C" __global__ void transpose_rows(const float* in, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) out[(size_t)x * height + y] = in[(size_t)y * width + x];
}

template <int kPadding>
__device__ void transpose_tile(const float* in, float* out, int width, int height) {
  __shared__ float tile[32][32 + kPadding];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
  for (int r = 0; r < 32; r += 8) {
    tile[threadIdx.y + r][threadIdx.x] = in[(size_t)(y + r) * width + x];
  }
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
#pragma unroll
  for (int r = 0; r < 32; r += 8) {
    out[(size_t)(y + r) * height + x] = tile[threadIdx.x][threadIdx.y + r];
  }
}

extern "C" __global__ void transpose_conflicts(const float* in, float* out, int width,
                                               int height) {
  transpose_tile<0>(in, out, width, height);
}

extern "C" __global__ void transpose_padded(const float* in, float* out, int width, int height) {
  transpose_tile<1>(in, out, width, height);
}

// (a, b, c, d) to (a, c, b, d): the heads of attention.
extern "C" __global__ void permute_heads(const float* in, float* out, int b, int c, int d, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int id = i % d, ic = i / d % c, ib = i / d / c % b, ia = i / d / c / b;
  out[((ia * c + ic) * b + ib) * d + id] = in[i];
}

// (a, b, c, d) to (d, c, b, a), element by element of the output.
extern "C" __global__ void permute_reverse(const float* in, float* out, int a, int b, int c, int d,
                                           int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int ia = i % a, ib = i / a % b, ic = i / a / b % c, id = i / a / b / c;
  out[i] = in[((ia * b + ib) * c + ic) * d + id];
}

// One pass of Stockham's transform of radix 2 over complex numbers in global memory.
extern "C" __global__ void fft_pass(const float2* in, float2* out, int half, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= half) return;
  int k = i & (size - 1);
  float s, c;
  sincospif(-(float)k / size, &s, &c);
  float2 a = in[i], b = in[i + half];
  float2 t = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
  int j = ((i - k) << 1) + k;
  out[j] = make_float2(a.x + t.x, a.y + t.y);
  out[j + size] = make_float2(a.x - t.x, a.y - t.y);
}

// Transforms of 1024 points in shared memory, a block each, 512 threads.
extern "C" __global__ void fft_1024(const float2* in, float2* out) {
  __shared__ float2 data[2][1024];
  int t = threadIdx.x, from = 0;
  data[0][t] = in[blockIdx.x * 1024 + t];
  data[0][t + 512] = in[blockIdx.x * 1024 + t + 512];
  for (int size = 1; size < 1024; size *= 2) {
    __syncthreads();
    int k = t & (size - 1), j = ((t - k) << 1) + k;
    float s, c;
    __sincosf(-3.14159265f * k / size, &s, &c);
    float2 a = data[from][t], b = data[from][t + 512];
    float2 w = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
    data[1 - from][j] = make_float2(a.x + w.x, a.y + w.y);
    data[1 - from][j + size] = make_float2(a.x - w.x, a.y - w.y);
    from = 1 - from;
  }
  __syncthreads();
  out[blockIdx.x * 1024 + t] = data[from][t];
  out[blockIdx.x * 1024 + t + 512] = data[from][t + 512];
}
