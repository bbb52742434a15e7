// Kernels of neural networks, many in 16-bit floats.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

// Bias and SiLU on pairs of halves.
extern "C" __global__ void bias_silu_half(const __half2* in, const __half2* bias, __half2* out,
                                          int pairs, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  float2 v = __half22float2(__hadd2(in[i], bias[i % columns]));
  v.x = v.x / (1.0f + __expf(-v.x));
  v.y = v.y / (1.0f + __expf(-v.y));
  out[i] = __float22half2_rn(v);
}

// A residual is added to bf16 activations and their rows are normalized, a warp per row of 512.
extern "C" __global__ void add_norm_bf16(const uint4* x, const uint4* residual, uint4* out,
                                         int rows) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float v[16], sum = 0.0f;
#pragma unroll
  for (int part = 0; part < 2; part++) {
    size_t at = (size_t)row * 64 + part * 32 + lane;
    uint4 a = x[at], b = residual[at];
    const __nv_bfloat162* pa = reinterpret_cast<const __nv_bfloat162*>(&a);
    const __nv_bfloat162* pb = reinterpret_cast<const __nv_bfloat162*>(&b);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      float2 fa = __bfloat1622float2(pa[k]), fb = __bfloat1622float2(pb[k]);
      v[part * 8 + 2 * k] = fa.x + fb.x;
      v[part * 8 + 2 * k + 1] = fa.y + fb.y;
    }
  }
#pragma unroll
  for (int k = 0; k < 16; k++) sum += v[k] * v[k];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  float scale = rsqrtf(sum / 512 + 1e-5f);
#pragma unroll
  for (int part = 0; part < 2; part++) {
    uint4 packed;
    __nv_bfloat162* p = reinterpret_cast<__nv_bfloat162*>(&packed);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      p[k] = __floats2bfloat162_rn(v[part * 8 + 2 * k] * scale, v[part * 8 + 2 * k + 1] * scale);
    }
    out[(size_t)row * 64 + part * 32 + lane] = packed;
  }
}

// Rows of halves to 8-bit integers, scaled by their largest element: a block per row.
extern "C" __global__ void quantize_rows(const __half2* in, char2* out, float* scales, int pairs) {
  __shared__ float part[8];
  const __half2* row = in + (size_t)blockIdx.x * pairs;
  float largest = 1e-8f;
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    float2 v = __half22float2(row[i]);
    largest = fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y)));
  }
  for (int offset = 16; offset; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
  }
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < 8; warp++) largest = fmaxf(largest, part[warp]);
  float scale = 127.0f / largest;
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    float2 v = __half22float2(row[i]);
    out[(size_t)blockIdx.x * pairs + i] =
        make_char2((char)rintf(v.x * scale), (char)rintf(v.y * scale));
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = largest / 127.0f;
}

// A vector times weights of 4 bits, 8 to a word: a warp per output.
extern "C" __global__ void product_4_bits(const unsigned* weight, const float* scale,
                                          const float* x, float* y, int rows, int words) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int w = lane; w < words; w += 32) {
    unsigned packed = weight[(size_t)row * words + w];
    const float4* at = reinterpret_cast<const float4*>(x + 8 * w);
    float4 a = at[0], b = at[1];
    sum += ((int)(packed & 15) - 8) * a.x + ((int)(packed >> 4 & 15) - 8) * a.y;
    sum += ((int)(packed >> 8 & 15) - 8) * a.z + ((int)(packed >> 12 & 15) - 8) * a.w;
    sum += ((int)(packed >> 16 & 15) - 8) * b.x + ((int)(packed >> 20 & 15) - 8) * b.y;
    sum += ((int)(packed >> 24 & 15) - 8) * b.z + ((int)(packed >> 28 & 15) - 8) * b.w;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (lane == 0) y[row] = sum * scale[row];
}

// The mean and the variance of each channel of a batch: a block per channel.
extern "C" __global__ void batch_statistics(const float* in, float2* out, int images, int channels,
                                            int size) {
  __shared__ float sums[16], squares[16];
  int c = blockIdx.x;
  float sum = 0.0f, square = 0.0f;
  for (int image = 0; image < images; image++) {
    const float* from = in + ((size_t)image * channels + c) * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      float v = from[i];
      sum += v;
      square += v * v;
    }
  }
  for (int offset = 16; offset; offset /= 2) {
    sum += __shfl_down_sync(~0u, sum, offset);
    square += __shfl_down_sync(~0u, square, offset);
  }
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum, squares[threadIdx.x / 32] = square;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 16; warp++) sum += sums[warp], square += squares[warp];
    float count = (float)images * size, mean = sum / count;
    out[c] = make_float2(mean, square / count - mean * mean);
  }
}

// The mean of the rows of a table that each bag names: a block per bag.
extern "C" __global__ void embedding_bag(const int* token, const float* table, float* out, int each,
                                         int columns) {
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    float sum = 0.0f;
    for (int k = 0; k < each; k++) {
      sum += table[(size_t)token[blockIdx.x * each + k] * columns + c];
    }
    out[(size_t)blockIdx.x * columns + c] = sum / each;
  }
}

// An exponential mean along time: a thread per column, step after step.
extern "C" __global__ void smooth_in_time(const float* in, float* out, float keep, int steps,
                                          int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  float state = 0.0f;
  for (int s = 0; s < steps; s++) {
    state = keep * state + (1.0f - keep) * in[(size_t)s * columns + c];
    out[(size_t)s * columns + c] = state;
  }
}

// Sums of rows of 4096, whose parts are copied to shared memory two ahead.
extern "C" __global__ void sum_rows_ahead(const float4* in, float* out) {
  __shared__ float4 stage[3][128];
  __shared__ float part[4];
  const float4* row = in + (size_t)blockIdx.x * 1024;
  int t = threadIdx.x;
  for (int s = 0; s < 2; s++) {
    __pipeline_memcpy_async(&stage[s][t], &row[s * 128 + t], 16);
    __pipeline_commit();
  }
  float sum = 0.0f;
  for (int s = 0; s < 8; s++) {
    if (s + 2 < 8) __pipeline_memcpy_async(&stage[(s + 2) % 3][t], &row[(s + 2) * 128 + t], 16);
    __pipeline_commit();
    __pipeline_wait_prior(2);
    float4 v = stage[s % 3][t];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (t % 32 == 0) part[t / 32] = sum;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}
