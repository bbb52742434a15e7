// Softmax, layer norm and attention.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ float all_sum(float v) {
  for (int offset = 16; offset; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

__device__ float all_max(float v) {
  for (int offset = 16; offset; offset /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, offset));
  return v;
}

// A warp per row of up to 1024 elements, which stay in registers.
extern "C" __global__ void softmax_warp(const float* in, float* out, int rows) {
  constexpr int kColumns = 256, kEach = kColumns / 32;
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float v[kEach], largest = -1e30f, sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    v[k] = in[(size_t)row * kColumns + k * 32 + lane];
    largest = fmaxf(largest, v[k]);
  }
  largest = all_max(largest);
#pragma unroll
  for (int k = 0; k < kEach; k++) sum += v[k] = expf(v[k] - largest);
  sum = all_sum(sum);
#pragma unroll
  for (int k = 0; k < kEach; k++) out[(size_t)row * kColumns + k * 32 + lane] = v[k] / sum;
}

// A block per row of any length: three passes over it.
extern "C" __global__ void softmax_block(const float* in, float* out, int columns) {
  __shared__ float part[32];
  const float* row = in + (size_t)blockIdx.x * columns;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float largest = -1e30f, sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) largest = fmaxf(largest, row[c]);
  largest = all_max(largest);
  if (lane == 0) part[warp] = largest;
  __syncthreads();
  largest = all_max(lane < warps ? part[lane] : -1e30f);
  __syncthreads();
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(row[c] - largest);
  sum = all_sum(sum);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = all_sum(lane < warps ? part[lane] : 0.0f);
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    out[(size_t)blockIdx.x * columns + c] = expf(row[c] - largest) / sum;
  }
}

// One thread per row, as beginners write it.
extern "C" __global__ void softmax_thread(const float* in, float* out, int rows, int columns) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* from = in + (size_t)row * columns;
  float largest = -1e30f, sum = 0.0f;
  for (int c = 0; c < columns; c++) largest = fmaxf(largest, from[c]);
  for (int c = 0; c < columns; c++) sum += expf(from[c] - largest);
  for (int c = 0; c < columns; c++) out[(size_t)row * columns + c] = expf(from[c] - largest) / sum;
}

extern "C" __global__ void layer_norm(const float* in, const float* gain, const float* shift,
                                      float* out, int columns) {
  __shared__ float sums[32], squares[32];
  const float* row = in + (size_t)blockIdx.x * columns;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float sum = 0.0f, square = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    float v = row[c];
    sum += v;
    square += v * v;
  }
  sum = all_sum(sum);
  square = all_sum(square);
  if (lane == 0) sums[warp] = sum, squares[warp] = square;
  __syncthreads();
  sum = all_sum(lane < warps ? sums[lane] : 0.0f);
  square = all_sum(lane < warps ? squares[lane] : 0.0f);
  float mean = sum / columns, scale = rsqrtf(square / columns - mean * mean + 1e-5f);
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    out[(size_t)blockIdx.x * columns + c] = (row[c] - mean) * scale * gain[c] + shift[c];
  }
}

// RMS norm of bfloat16 rows, eight elements a load; the row stays in registers.
extern "C" __global__ void rms_norm_bf16(const uint4* in, const uint4* gain, uint4* out) {
  __shared__ float part[8];
  uint4 raw = in[(size_t)blockIdx.x * blockDim.x + threadIdx.x], g = gain[threadIdx.x];
  __nv_bfloat162* v = reinterpret_cast<__nv_bfloat162*>(&raw);
  const __nv_bfloat162* weight = reinterpret_cast<const __nv_bfloat162*>(&g);
  float square = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float2 f = __bfloat1622float2(v[k]);
    square += f.x * f.x + f.y * f.y;
  }
  square = all_sum(square);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = square;
  __syncthreads();
  square = 0.0f;
  for (int w = 0; w < blockDim.x / 32; w++) square += part[w];
  float scale = rsqrtf(square / (8 * blockDim.x) + 1e-6f);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float2 f = __bfloat1622float2(v[k]), w = __bfloat1622float2(weight[k]);
    v[k] = __floats2bfloat162_rn(f.x * scale * w.x, f.y * scale * w.y);
  }
  out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = raw;
}

// Scores of attention, a thread per score: dot products of rows of 64.
extern "C" __global__ void attention_scores(const float* q, const float* k, float* scores,
                                            int length) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= length || j >= length) return;
  const float* a = q + ((size_t)blockIdx.z * length + i) * 64;
  const float* b = k + ((size_t)blockIdx.z * length + j) * 64;
  float sum = 0.0f;
  for (int d = 0; d < 64; d++) sum += a[d] * b[d];
  scores[((size_t)blockIdx.z * length + i) * length + j] = sum * 0.125f;
}

// Attention with the running largest score, a thread per query, keys and values in shared memory.
extern "C" __global__ void attention_online(const float* q, const float* k, const float* v,
                                            float* out, int length) {
  constexpr int kDepth = 64, kTile = 32;
  __shared__ float keys[kTile][kDepth], values[kTile][kDepth];
  size_t head = (size_t)blockIdx.y * length * kDepth;
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float query[kDepth], sum[kDepth], largest = -1e30f, total = 0.0f;
#pragma unroll
  for (int d = 0; d < kDepth; d++) query[d] = q[head + (size_t)row * kDepth + d], sum[d] = 0.0f;
  for (int first = 0; first < length; first += kTile) {
    __syncthreads();
    for (int i = threadIdx.x; i < kTile * kDepth; i += blockDim.x) {
      keys[i / kDepth][i % kDepth] = k[head + (size_t)first * kDepth + i];
      values[i / kDepth][i % kDepth] = v[head + (size_t)first * kDepth + i];
    }
    __syncthreads();
    for (int j = 0; j < kTile; j++) {
      float score = 0.0f;
#pragma unroll
      for (int d = 0; d < kDepth; d++) score += query[d] * keys[j][d];
      score *= 0.125f;
      float larger = fmaxf(largest, score), old = expf(largest - larger);
      float weight = expf(score - larger);
      total = total * old + weight;
#pragma unroll
      for (int d = 0; d < kDepth; d++) sum[d] = sum[d] * old + weight * values[j][d];
      largest = larger;
    }
  }
#pragma unroll
  for (int d = 0; d < kDepth; d++) out[head + (size_t)row * kDepth + d] = sum[d] / total;
}

// Rotary position embedding of pairs of halves.
extern "C" __global__ void rotary_half(const __half2* in, __half2* out, int pairs, int per_head) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  int position = i / per_head, pair = i % per_head;
  float angle = position * exp2f(-13.287712f * pair / per_head), s, c;
  __sincosf(angle, &s, &c);
  float2 v = __half22float2(in[i]);
  out[i] = __floats2half2_rn(v.x * c - v.y * s, v.x * s + v.y * c);
}
