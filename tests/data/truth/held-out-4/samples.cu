// Kernels of the kinds that collections of samples have: reductions, scans, images, finance.

#include <cuda_fp16.h>

// The sum of a block's 512 elements: each thread adds two as it loads them, the last warp shuffles.
extern "C" __global__ void sum_pairs(const int* in, int* out, unsigned n) {
  __shared__ int part[256];
  unsigned tid = threadIdx.x, i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
  int mine = i < n ? in[i] : 0;
  if (i + blockDim.x < n) mine += in[i + blockDim.x];
  part[tid] = mine;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 32; half >>= 1) {
    if (tid < half) part[tid] = mine = mine + part[tid + half];
    __syncthreads();
  }
  if (tid < 32) {
    mine += part[tid + 32];
    for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(~0u, mine, offset);
    if (tid == 0) out[blockIdx.x] = mine;
  }
}

// The sum of an array in one launch: the block that ends last adds the sums of the others.
extern "C" __global__ void sum_last_block(const float* in, volatile float* partial, unsigned* ended,
                                          float* total, unsigned n) {
  __shared__ float part[128];
  __shared__ bool last;
  unsigned tid = threadIdx.x;
  float mine = 0.0f;
  for (unsigned i = blockIdx.x * 256 + tid; i < n; i += gridDim.x * 256) {
    mine += in[i];
    if (i + 128 < n) mine += in[i + 128];
  }
  for (int round = 0;; round++) {
    part[tid] = mine;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
      if (tid < half) part[tid] += part[tid + half];
      __syncthreads();
    }
    if (round == 1) break;
    if (tid == 0) {
      partial[blockIdx.x] = part[0];
      __threadfence();
      last = atomicInc(ended, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    mine = 0.0f;
    for (unsigned i = tid; i < gridDim.x; i += 128) mine += partial[i];
  }
  if (tid == 0) *total = part[0];
}

// Exclusive sums of 1024 elements a block, four a thread; shared memory with zeros in front.
extern "C" __global__ void scan_fours(const uint4* in, uint4* out) {
  __shared__ volatile unsigned shared[512];
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at = threadIdx.x;
  uint4 four = in[i];
  four.y += four.x, four.z += four.y, four.w += four.z;
  shared[at] = 0;
  at += 256;
  shared[at] = four.w;
  for (unsigned step = 1; step < 256; step *= 2) {
    __syncthreads();
    unsigned sum = shared[at] + shared[at - step];
    __syncthreads();
    shared[at] = sum;
  }
  unsigned before = shared[at] - four.w;
  out[i] = make_uint4(before, before + four.x, before + four.y, before + four.z);
}

#define RADIUS 8
__constant__ float row_taps[2 * RADIUS + 1];

// A row filter of 17 taps: a block of 16 by 4 makes 128 by 4 pixels.
extern "C" __global__ void filter_rows(const float* in, float* out, int width) {
  __shared__ float tile[4][10 * 16];
  int x0 = (blockIdx.x * 8 - 1) * 16 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
  const float* source = in + y * width + x0;
#pragma unroll
  for (int k = 1; k < 9; k++) tile[threadIdx.y][threadIdx.x + k * 16] = source[k * 16];
  tile[threadIdx.y][threadIdx.x] = x0 >= 0 ? source[0] : 0.0f;
  tile[threadIdx.y][threadIdx.x + 144] = width - x0 > 144 ? source[144] : 0.0f;
  __syncthreads();
#pragma unroll
  for (int k = 1; k < 9; k++) {
    float sum = 0.0f;
#pragma unroll
    for (int j = -RADIUS; j <= RADIUS; j++)
      sum += row_taps[RADIUS - j] * tile[threadIdx.y][threadIdx.x + k * 16 + j];
    out[y * width + x0 + k * 16] = sum;
  }
}

// A column filter of 17 taps: a block of 16 by 8 makes 16 by 64 pixels.
extern "C" __global__ void filter_columns(const float* in, float* out, int width, int height) {
  __shared__ float tile[16][10 * 8 + 1];
  int x = blockIdx.x * 16 + threadIdx.x, y0 = (blockIdx.y * 8 - 1) * 8 + threadIdx.y;
  const float* source = in + y0 * width + x;
#pragma unroll
  for (int k = 1; k < 9; k++) tile[threadIdx.x][threadIdx.y + k * 8] = source[k * 8 * width];
  tile[threadIdx.x][threadIdx.y] = y0 >= 0 ? source[0] : 0.0f;
  tile[threadIdx.x][threadIdx.y + 72] = height - y0 > 72 ? source[72 * width] : 0.0f;
  __syncthreads();
#pragma unroll
  for (int k = 1; k < 9; k++) {
    float sum = 0.0f;
#pragma unroll
    for (int j = -RADIUS; j <= RADIUS; j++)
      sum += row_taps[RADIUS - j] * tile[threadIdx.x][threadIdx.y + k * 8 + j];
    out[(y0 + k * 8) * width + x] = sum;
  }
}

// A histogram of 64 bins of bytes: each thread counts in bytes of its own, 64 threads a block.
extern "C" __global__ void count_bytes(const uint4* in, unsigned* partial) {
  __shared__ unsigned char bins[64 * 64];
  unsigned tid = threadIdx.x, at = (tid & ~63u) | ((tid & 15) << 2) | ((tid & 48) >> 4);
  for (int k = 0; k < 16; k++) ((unsigned*)bins)[tid + k * 64] = 0;
  __syncthreads();
  for (int k = 0; k < 15; k++) {
    uint4 data = in[(blockIdx.x * 15 + k) * 64 + tid];
    unsigned words[4] = {data.x, data.y, data.z, data.w};
#pragma unroll
    for (int w = 0; w < 4; w++) {
      bins[at + (words[w] >> 2 & 63) * 64]++;
      bins[at + (words[w] >> 10 & 63) * 64]++;
      bins[at + (words[w] >> 18 & 63) * 64]++;
      bins[at + (words[w] >> 26) * 64]++;
    }
  }
  __syncthreads();
  unsigned sum = 0, first = (tid & 15) * 4;
  for (int k = 0; k < 16; k++) {
    unsigned packed = ((unsigned*)bins)[tid * 16 + (first / 4 + k) % 16];
    sum += (packed & 255) + (packed >> 8 & 255) + (packed >> 16 & 255) + (packed >> 24);
  }
  partial[blockIdx.x * 64 + tid] = sum;
}

// Binomial trees for calls: a block per option, 2048 steps back, 16 nodes a thread.
extern "C" __global__ void option_trees(const float* price, const float* strike, float* value) {
  __shared__ float next[129];
  int tid = threadIdx.x;
  float s = price[blockIdx.x], x = strike[blockIdx.x], call[17];
  const float move = 0.0066f, up = 0.5012f, down = 0.4985f;
#pragma unroll
  for (int k = 0; k < 16; k++) {
    float at = s * __expf(move * (2.0f * (tid * 16 + k) - 2048.0f)) - x;
    call[k] = at > 0.0f ? at : 0.0f;
  }
  call[16] = 0.0f;
  if (tid == 0) next[128] = fmaxf(s * __expf(move * 2048.0f) - x, 0.0f);
  int last = max(0, tid * 16 - 1);
  for (int i = 2048; i > 0; i--) {
    next[tid] = call[0];
    __syncthreads();
    call[16] = next[tid + 1];
    __syncthreads();
    if (i > last) {
#pragma unroll
      for (int k = 0; k < 16; k++) call[k] = up * call[k + 1] + down * call[k];
    }
  }
  if (tid == 0) value[blockIdx.x] = call[0];
}

// European calls by simulation: a block per option, all blocks read the same normal samples.
extern "C" __global__ void simulate_calls(const float4* option, const float* sample, float2* result,
                                          int paths) {
  __shared__ float sums[256], squares[256];
  float4 o = option[blockIdx.x];  // price, strike, drift and volatility over the whole time
  float sum = 0.0f, square = 0.0f;
  for (int i = threadIdx.x; i < paths; i += 256) {
    float payoff = o.x * __expf(o.z + o.w * sample[i]) - o.y;
    payoff = payoff > 0.0f ? payoff : 0.0f;
    sum += payoff;
    square += payoff * payoff;
  }
  sums[threadIdx.x] = sum, squares[threadIdx.x] = square;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      squares[threadIdx.x] += squares[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) result[blockIdx.x] = make_float2(sums[0] / paths, squares[0] / paths);
}

// Quasi-random points: a row of blocks per dimension, a thread strides over Gray codes.
extern "C" __global__ void sobol_points(unsigned points, const unsigned* direction, float* out) {
  __shared__ unsigned v[32];
  direction += blockIdx.y * 32, out += (size_t)blockIdx.y * points;
  if (threadIdx.x < 32) v[threadIdx.x] = direction[threadIdx.x];
  __syncthreads();
  unsigned i0 = threadIdx.x + blockIdx.x * blockDim.x, stride = gridDim.x * blockDim.x;
  unsigned gray = i0 ^ (i0 >> 1), x = 0;
  for (unsigned k = 0; k < __ffs(stride) - 1; k++) {
    x ^= -(gray & 1) & v[k];
    gray >>= 1;
  }
  if (i0 < points) out[i0] = x * 2.3283064365386963e-10f;
  unsigned one = v[__ffs(stride) - 2];
  for (unsigned i = i0 + stride; i < points; i += stride) {
    x ^= one ^ v[__ffs(~((i - stride) | (stride - 1))) - 1];
    out[i] = x * 2.3283064365386963e-10f;
  }
}

__constant__ float cosines[64];

// The cosine transform of each 8 by 8 pixels of an image, a thread per coefficient.
extern "C" __global__ void cosine_8x8(const float* in, float* out, int width) {
  __shared__ float block[64], half_done[64];
  int tx = threadIdx.x, ty = threadIdx.y;
  size_t at = (size_t)(blockIdx.y * 8 + ty) * width + blockIdx.x * 8 + tx;
  block[ty * 8 + tx] = in[at] - 128.0f;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; k++) sum += cosines[ty * 8 + k] * block[k * 8 + tx];
  half_done[ty * 8 + tx] = sum;
  __syncthreads();
  sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; k++) sum += half_done[ty * 8 + k] * cosines[tx * 8 + k];
  out[at] = sum;
}

// Edges of a picture of bytes, without shared memory.
extern "C" __global__ void edges(const unsigned char* in, unsigned char* out, int width,
                                 int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
  const unsigned char *up = in + (y - 1) * width + x, *on = up + width, *low = on + width;
  int across = up[1] + 2 * on[1] + low[1] - up[-1] - 2 * on[-1] - low[-1];
  int along = low[-1] + 2 * low[0] + low[1] - up[-1] - 2 * up[0] - up[1];
  out[y * width + x] = (unsigned char)min(255, (int)(0.5f * (abs(across) + abs(along))));
}

__device__ float4 cubic(float a) {
  float b = a * a, c = b * a;
  return make_float4((1.0f - 3.0f * a + 3.0f * b - c) / 6.0f, (4.0f - 6.0f * b + 3.0f * c) / 6.0f,
                     (1.0f + 3.0f * a + 3.0f * b - 3.0f * c) / 6.0f, c / 6.0f);
}

// An image resampled by cubic B-splines, 16 pixels for each.
extern "C" __global__ void resample(const float* in, float* out, int width, int height, int wide,
                                    int high, float scale) {
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x >= wide || y >= high) return;
  float u = x * scale, v = y * scale, fu = floorf(u), fv = floorf(v);
  float4 cx = cubic(u - fu), cy = cubic(v - fv);
  float weight[4] = {cy.x, cy.y, cy.z, cy.w}, sum = 0.0f;
  for (int j = 0; j < 4; j++) {
    const float* row = in + min(max((int)fv + j - 1, 0), height - 1) * width;
    float a = row[max((int)fu - 1, 0)], b = row[(int)fu];
    float c = row[min((int)fu + 1, width - 1)], d = row[min((int)fu + 2, width - 1)];
    sum += weight[j] * (cx.x * a + cx.y * b + cx.z * c + cx.w * d);
  }
  out[y * wide + x] = sum;
}

// Inner products of pairs of vectors: 1024 partial sums in shared memory, then a tree.
extern "C" __global__ void inner_products(const float* a, const float* b, float* out, int vectors,
                                          int length) {
  __shared__ float sums[1024];
  for (int v = blockIdx.x; v < vectors; v += gridDim.x) {
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) {
      float sum = 0.0f;
      for (int i = v * length + k; i < (v + 1) * length; i += 1024) sum += a[i] * b[i];
      sums[k] = sum;
    }
    for (int half = 512; half > 0; half /= 2) {
      __syncthreads();
      for (int k = threadIdx.x; k < half; k += blockDim.x) sums[k] += sums[k + half];
    }
    __syncthreads();
    if (threadIdx.x == 0) out[v] = sums[0];
  }
}

// Sums along the rows of an image of bytes: a block per row, 16 pixels a thread.
extern "C" __global__ void sum_along_rows(const uint4* in, uint4* out) {
  __shared__ unsigned of_warp[8];
  unsigned tid = threadIdx.x, lane = tid % 32, value[16];
  uint4 data = in[blockIdx.x * blockDim.x + tid];
  unsigned words[4] = {data.x, data.y, data.z, data.w};
#pragma unroll
  for (int k = 0; k < 16; k++)
    value[k] = (words[k / 4] >> 8 * (k % 4) & 255) + (k ? value[k - 1] : 0);
  unsigned sum = value[15];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    unsigned from = __shfl_up_sync(__activemask(), sum, step);
    if (lane >= step) sum += from;
  }
  if (lane == 31 || tid == blockDim.x - 1) of_warp[tid / 32] = sum;
  __syncthreads();
  sum -= value[15];
  for (int w = 0; w < tid / 32; w++) sum += of_warp[w];
  uint4* row = out + ((size_t)blockIdx.x * blockDim.x + tid) * 4;
#pragma unroll
  for (int k = 0; k < 4; k++)
    row[k] = make_uint4(sum + value[4 * k], sum + value[4 * k + 1], sum + value[4 * k + 2],
                        sum + value[4 * k + 3]);
}

// A sorting network in shared memory that merges odd and even: 1024 keys with values a block.
extern "C" __global__ void sort_network(const int* key_in, const int* value_in,
                                        int* key_out, int* value_out) {
  __shared__ int key[1024], value[1024];
  unsigned tid = threadIdx.x, base = blockIdx.x * 1024 + tid;
  key[tid] = key_in[base], value[tid] = value_in[base];
  key[tid + 512] = key_in[base + 512], value[tid + 512] = value_in[base + 512];
  for (unsigned size = 2; size <= 1024; size <<= 1) {
    unsigned stride = size / 2, offset = tid & (stride - 1);
    __syncthreads();
    unsigned at = 2 * tid - (tid & (stride - 1));
    if (key[at] > key[at + stride]) {
      int k = key[at], v = value[at];
      key[at] = key[at + stride], value[at] = value[at + stride];
      key[at + stride] = k, value[at + stride] = v;
    }
    for (stride >>= 1; stride > 0; stride >>= 1) {
      __syncthreads();
      at = 2 * tid - (tid & (stride - 1));
      if (offset >= stride && key[at - stride] > key[at]) {
        int k = key[at], v = value[at];
        key[at] = key[at - stride], value[at] = value[at - stride];
        key[at - stride] = k, value[at - stride] = v;
      }
    }
  }
  __syncthreads();
  key_out[base] = key[tid], value_out[base] = value[tid];
  key_out[base + 512] = key[tid + 512], value_out[base + 512] = value[tid + 512];
}
