// Steps of language models: quantized weights, caches, sampling, routing, tensor cores.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#define WARP_SIZE 32
#define FULL_MASK 0xffffffffu

template <typename T>
__device__ __forceinline__ T warpReduceSum(T val) {
#pragma unroll
  for (int offset = WARP_SIZE / 2; offset > 0; offset >>= 1)
    val += __shfl_down_sync(FULL_MASK, val, offset);
  return val;
}

// y = W x with 8-bit weights and activations: a warp per row, 16 bytes a load.
extern "C" __global__ void __launch_bounds__(128)
    gemv_int8(const int4* __restrict__ W, const int4* __restrict__ x,
              const float* __restrict__ w_scale, float x_scale, float* __restrict__ y, int rows,
              int cols16) {
  const int row = blockIdx.x * (blockDim.x / WARP_SIZE) + threadIdx.x / WARP_SIZE;
  const int lane = threadIdx.x & (WARP_SIZE - 1);
  if (row >= rows) return;
  const int4* w = W + (size_t)row * cols16;
  int acc = 0;
#pragma unroll 4
  for (int c = lane; c < cols16; c += WARP_SIZE) {
    const int4 a = __ldg(w + c);
    const int4 b = __ldg(x + c);
    acc = __dp4a(a.x, b.x, acc);
    acc = __dp4a(a.y, b.y, acc);
    acc = __dp4a(a.z, b.z, acc);
    acc = __dp4a(a.w, b.w, acc);
  }
  acc = warpReduceSum(acc);
  if (lane == 0) y[row] = acc * w_scale[row] * x_scale;
}

// 32 weights of 4 bits behind their scale: 18 bytes.
struct block_q4_0 {
  half d;
  unsigned char qs[16];
};

// y = W x with such blocks: a warp per row, a block per lane and step.
extern "C" __global__ void gemv_q4_blocks(const block_q4_0* W, const float* x, float* y, int rows,
                                          int blocks_per_row) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int b = threadIdx.x; b < blocks_per_row; b += WARP_SIZE) {
    const block_q4_0* blk = &W[(size_t)row * blocks_per_row + b];
    const float* xb = x + b * 32;
    float part = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      int q = blk->qs[i];
      part += ((q & 0xf) - 8) * xb[i];
      part += ((q >> 4) - 8) * xb[i + 16];
    }
    sum += __half2float(blk->d) * part;
  }
  sum = warpReduceSum(sum);
  if (threadIdx.x == 0) y[row] = sum;
}

__constant__ float nf4_table[16] = {
    -1.0f,        -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
    -0.09105004f, 0.0f,         0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
    0.44070983f,  0.56261700f,  0.72295684f,  1.0f};

// NormalFloat weights to half: eight values a thread, a scale for 64.
extern "C" __global__ void dequantize_nf4(const unsigned* __restrict__ packed,
                                          const float* __restrict__ absmax,
                                          half* __restrict__ out, int words) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= words) return;
  unsigned q = packed[i];
  float s = absmax[i >> 3];
  half2 h[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float lo = nf4_table[(q >> (8 * k)) & 0xf] * s;
    float hi = nf4_table[(q >> (8 * k + 4)) & 0xf] * s;
    h[k] = __floats2half2_rn(lo, hi);
  }
  reinterpret_cast<uint4*>(out)[i] = *reinterpret_cast<uint4*>(h);
}

// New keys and values to their slots of a paged cache: a block per token.
// Keys are stored [block][head][size / 8][16][8], values [block][head][size][16].
extern "C" __global__ void reshape_and_cache(const half* __restrict__ key,
                                             const half* __restrict__ value,
                                             half* __restrict__ key_cache,
                                             half* __restrict__ value_cache,
                                             const long long* __restrict__ slot_mapping,
                                             int num_heads, int head_size) {
  const int block_size = 16, x = 8;
  const long long token = blockIdx.x;
  const long long slot = slot_mapping[token];
  if (slot < 0) return;
  const long long block = slot / block_size, offset = slot % block_size;
  const int n = num_heads * head_size;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const int head = i / head_size, at = i % head_size;
    const long long of_key = ((block * num_heads + head) * (head_size / x) + at / x) *
                                 block_size * x + offset * x + at % x;
    const long long of_value =
        ((block * num_heads + head) * head_size + at) * block_size + offset;
    key_cache[of_key] = key[token * n + i];
    value_cache[of_value] = value[token * n + i];
  }
}

// Beams take over the caches of their parents: a grid-stride loop over 16-byte words.
extern "C" __global__ void reorder_beams(const uint4* __restrict__ in, uint4* __restrict__ out,
                                         const int* __restrict__ parent, int beams,
                                         int words_per_beam) {
  const size_t total = (size_t)beams * words_per_beam;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < total;
       i += (size_t)gridDim.x * blockDim.x) {
    const int beam = i / words_per_beam, at = i % words_per_beam;
    out[i] = __ldg(&in[(size_t)parent[beam] * words_per_beam + at]);
  }
}

// Pads each expert's tokens to tiles; one block, a thread per expert counts its share of tokens.
extern "C" __global__ void align_experts(const int* topk_ids, int* sorted_ids, int* tile_expert,
                                         int* total, int numel, int tile) {
  const int E = 64;
  __shared__ int counts[E + 1][E];
  __shared__ int cumsum[E + 1];
  const int per = (numel + E - 1) / E, start = threadIdx.x * per;
  for (int e = 0; e < E; ++e) counts[threadIdx.x + 1][e] = 0;
  for (int i = start; i < numel && i < start + per; ++i) ++counts[threadIdx.x + 1][topk_ids[i]];
  __syncthreads();
  counts[0][threadIdx.x] = 0;
  for (int t = 1; t <= E; ++t) counts[t][threadIdx.x] += counts[t - 1][threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    cumsum[0] = 0;
    for (int e = 1; e <= E; ++e)
      cumsum[e] = cumsum[e - 1] + (counts[E][e - 1] + tile - 1) / tile * tile;
    *total = cumsum[E];
  }
  __syncthreads();
  for (int i = cumsum[threadIdx.x]; i < cumsum[threadIdx.x + 1]; i += tile)
    tile_expert[i / tile] = threadIdx.x;
  for (int i = start; i < numel && i < start + per; ++i) {
    const int e = topk_ids[i];
    sorted_ids[cumsum[e] + counts[threadIdx.x][e]] = i;
    ++counts[threadIdx.x][e];
  }
}

// Penalties for repeated words, then the temperature, in place.
extern "C" __global__ void apply_penalties(float* logits, const int* output_counts,
                                           const bool* in_prompt, const float* repetition,
                                           const float* frequency, const float* presence,
                                           const float* temperature, int vocab) {
  int seq = blockIdx.y, v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= vocab) return;
  size_t i = (size_t)seq * vocab + v;
  float logit = logits[i];
  int count = output_counts[i];
  if (count > 0 || in_prompt[i])
    logit = logit > 0 ? logit / repetition[seq] : logit * repetition[seq];
  logit -= frequency[seq] * count;
  if (count > 0) logit -= presence[seq];
  logits[i] = logit / temperature[seq];
}

// A word drawn by the inverse of the distribution: chunks of 1024 are scanned until one holds it.
extern "C" __global__ void __launch_bounds__(1024)
    sample_inverse(const float* probs, const float* uniform, int* sampled, int vocab) {
  __shared__ float warp_sums[32];
  __shared__ int found;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const float* p = probs + (size_t)blockIdx.x * vocab;
  const float target = uniform[blockIdx.x];
  float before = 0.0f;
  if (threadIdx.x == 0) found = vocab - 1;
  for (int base = 0; base < vocab; base += 1024) {
    const int i = base + threadIdx.x;
    float scan = i < vocab ? p[i] : 0.0f;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      float up = __shfl_up_sync(FULL_MASK, scan, d);
      if (lane >= d) scan += up;
    }
    if (lane == 31) warp_sums[warp] = scan;
    __syncthreads();
    if (warp == 0) {
      float s = warp_sums[lane];
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        float up = __shfl_up_sync(FULL_MASK, s, d);
        if (lane >= d) s += up;
      }
      warp_sums[lane] = s;
    }
    __syncthreads();
    float total = before + scan + (warp > 0 ? warp_sums[warp - 1] : 0.0f);
    bool here = i < vocab && total > target;
    if (here) atomicMin(&found, i);
    before += warp_sums[31];
    if (__syncthreads_or(here)) break;
  }
  if (threadIdx.x == 0) sampled[blockIdx.x] = found;
}

// The k-th largest of each row by four passes over digits of eight bits.
extern "C" __global__ void radix_select(const float* in, float* kth, int width, int k) {
  __shared__ int histogram[256];
  __shared__ unsigned prefix;
  __shared__ int remaining;
  const float* row = in + (size_t)blockIdx.x * width;
  if (threadIdx.x == 0) {
    prefix = 0;
    remaining = k;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    unsigned mask = shift == 24 ? 0u : ~0u << (shift + 8);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      unsigned bits = __float_as_uint(row[i]);
      bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
      if ((bits & mask) == prefix) atomicAdd(&histogram[(bits >> shift) & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255, left = remaining;
      while (histogram[digit] < left) left -= histogram[digit--];
      remaining = left;
      prefix |= (unsigned)digit << shift;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0)
    kth[blockIdx.x] =
        __uint_as_float(prefix & 0x80000000u ? prefix & 0x7fffffffu : ~prefix);
}

// Parts of attention over pieces of the context become one: a block per head, a thread per element.
extern "C" __global__ void combine_splits(const float* __restrict__ partial,
                                          const float* __restrict__ lse, float* __restrict__ out,
                                          int splits, int head_size) {
  extern __shared__ float weights[];
  const size_t head = blockIdx.x;
  float m = -INFINITY;
  for (int s = threadIdx.x; s < splits; s += blockDim.x)
    weights[s] = lse[head * splits + s];
  __syncthreads();
  for (int s = 0; s < splits; ++s) m = fmaxf(m, weights[s]);
  float sum = 0.0f, acc = 0.0f;
  for (int s = 0; s < splits; ++s) {
    const float w = __expf(weights[s] - m);
    sum += w;
    acc += w * partial[(head * splits + s) * head_size + threadIdx.x];
  }
  out[head * head_size + threadIdx.x] = acc / sum;
}

// A root-mean-square norm of each head of 128: a warp per head, four elements a lane, in place.
extern "C" __global__ void __launch_bounds__(256)
    norm_heads(__nv_bfloat16* qkv, const __nv_bfloat16* weight, int heads, float eps) {
  const int head = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (head >= heads) return;
  uint2* at = reinterpret_cast<uint2*>(qkv + (size_t)head * 128) + lane;
  uint2 raw = *at;
  __nv_bfloat162* pair = reinterpret_cast<__nv_bfloat162*>(&raw);
  float2 a = __bfloat1622float2(pair[0]), b = __bfloat1622float2(pair[1]);
  float square = a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) square += __shfl_xor_sync(FULL_MASK, square, mask);
  const float scale = rsqrtf(square / 128 + eps);
  const __nv_bfloat162* w = reinterpret_cast<const __nv_bfloat162*>(weight) + 2 * lane;
  float2 u = __bfloat1622float2(w[0]), v = __bfloat1622float2(w[1]);
  pair[0] = __floats2bfloat162_rn(a.x * scale * u.x, a.y * scale * u.y);
  pair[1] = __floats2bfloat162_rn(b.x * scale * v.x, b.y * scale * v.y);
  *at = raw;
}

// A scaled and masked softmax of rows of 2^LOG elements: a warp takes two rows.
template <int LOG>
__device__ __forceinline__ void softmax_masked_rows(half* dst, const half* src,
                                                    const unsigned char* mask, float scale,
                                                    int rows) {
  constexpr int kElements = 1 << LOG, kIterations = kElements / 32, kBatch = 2;
  const int first = (blockDim.y * blockIdx.x + threadIdx.y) * kBatch;
  float elements[kBatch][kIterations];
#pragma unroll
  for (int i = 0; i < kBatch; ++i)
#pragma unroll
    for (int it = 0; it < kIterations; ++it) {
      const size_t at = (size_t)(first + i) * kElements + it * 32 + threadIdx.x;
      elements[i][it] = first + i >= rows ? -INFINITY
                        : mask[at]        ? -10000.0f
                                          : scale * __half2float(src[at]);
    }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    float m = elements[i][0];
#pragma unroll
    for (int it = 1; it < kIterations; ++it) m = fmaxf(m, elements[i][it]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(FULL_MASK, m, d));
    float sum = 0.0f;
#pragma unroll
    for (int it = 0; it < kIterations; ++it) {
      elements[i][it] = __expf(elements[i][it] - m);
      sum += elements[i][it];
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, d);
    if (first + i >= rows) break;
#pragma unroll
    for (int it = 0; it < kIterations; ++it)
      dst[(size_t)(first + i) * kElements + it * 32 + threadIdx.x] =
          __float2half(elements[i][it] / sum);
  }
}

extern "C" __global__ void softmax_masked(half* dst, const half* src, const unsigned char* mask,
                                          float scale, int rows) {
  softmax_masked_rows<10>(dst, src, mask, scale, rows);
}

// Causal scores of heads of 64 by tensor cores: tiles above the diagonal are left out.
extern "C" __global__ void __launch_bounds__(128)
    scores_causal(const half* Q, const half* K, float* S, int n, float scale) {
  using namespace nvcuda;
  if (blockIdx.x > blockIdx.y) return;
  __shared__ __align__(16) half q[64][72], k[64][72];
  const size_t head = (size_t)blockIdx.z * n * 64;
  const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < 64 * 8; i += 128) {
    const int r = i / 8, c = i % 8 * 8;
    *(float4*)&q[r][c] = *(const float4*)&Q[head + (size_t)(row0 + r) * 64 + c];
    *(float4*)&k[r][c] = *(const float4*)&K[head + (size_t)(col0 + r) * 64 + c];
  }
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[4];
#pragma unroll
  for (int j = 0; j < 4; j++) wmma::fill_fragment(c[j], 0.0f);
#pragma unroll
  for (int kk = 0; kk < 64; kk += 16) {
    wmma::load_matrix_sync(a, &q[warp * 16][kk], 72);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      wmma::load_matrix_sync(b, &k[j * 16][kk], 72);
      wmma::mma_sync(c[j], a, b, c[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    for (int t = 0; t < c[j].num_elements; t++) c[j].x[t] *= scale;
    wmma::store_matrix_sync(S + (size_t)blockIdx.z * n * n + (size_t)(row0 + warp * 16) * n +
                                col0 + j * 16,
                            c[j], n, wmma::mem_row_major);
  }
}

// C = A B in bfloat16, tiles of 64 by 64 by 32 copied three stages ahead.
extern "C" __global__ void __launch_bounds__(128)
    product_three_stages(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B,
                         float* __restrict__ C, int M, int N, int K) {
  using namespace nvcuda;
  constexpr int BM = 64, BN = 64, BK = 32, STAGES = 3;
  __shared__ __align__(16) __nv_bfloat16 As[STAGES][BM][BK + 8], Bs[STAGES][BK][BN + 8];
  const int tid = threadIdx.x, warp = tid / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  auto load = [&](int stage, int k0) {
#pragma unroll
    for (int i = tid; i < BM * BK / 8; i += 128)
      __pipeline_memcpy_async(&As[stage][i / 4][i % 4 * 8],
                              A + (size_t)(m0 + i / 4) * K + k0 + i % 4 * 8, 16);
#pragma unroll
    for (int i = tid; i < BK * BN / 8; i += 128)
      __pipeline_memcpy_async(&Bs[stage][i / 8][i % 8 * 8],
                              B + (size_t)(k0 + i / 8) * N + n0 + i % 8 * 8, 16);
  };
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) wmma::fill_fragment(acc[i][j], 0.0f);
  const int tiles = K / BK;
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < tiles) load(s, s * BK);
    __pipeline_commit();
  }
  for (int t = 0; t < tiles; t++) {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    if (t + STAGES - 1 < tiles) load((t + STAGES - 1) % STAGES, (t + STAGES - 1) * BK);
    __pipeline_commit();
    const int s = t % STAGES;
#pragma unroll
    for (int kk = 0; kk < BK; kk += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b[2];
      for (int i = 0; i < 2; i++) wmma::load_matrix_sync(a[i], &As[s][wm + i * 16][kk], BK + 8);
      for (int j = 0; j < 2; j++) wmma::load_matrix_sync(b[j], &Bs[s][kk][wn + j * 16], BN + 8);
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) wmma::mma_sync(acc[i][j], a[i], b[j], acc[i][j]);
    }
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      wmma::store_matrix_sync(C + (size_t)(m0 + wm + i * 16) * N + n0 + wn + j * 16, acc[i][j], N,
                              wmma::mem_row_major);
}
