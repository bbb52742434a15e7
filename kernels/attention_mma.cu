// Attention in one kernel on tensor cores (mma.sync), in BF16.
//
// As attention-tiled, with Q, K, V and O in bfloat16; scores, weights and sums are float32, and weights
// are rounded to bfloat16 before they multiply V. Each of the WARPS warps of a block has 16 queries, and
// the block goes through the keys, KEYS at a time. The weights stay in registers: what a lane holds of
// the product of Q and K is what it must hold of the left matrix of the next product. V is copied
// (cp.async) while Q K^T is multiplied, and the next K while P V is.
//
// What to expect: products run on tensor cores, so the rest counts: for each score an exponential (16 a
// clock on a multiprocessor), and on the way to it a maximum, a multiply-add and a sum. With HEAD_SIZE 64
// a score costs 256 FLOPs of tensor cores, which take as long as its exponential at 4,096 FLOPs a
// clock; here both happen one after the other in a warp, and only other warps fill the gaps.

#include <cuda_bf16.h>

#define WARPS 4
#define THREADS (32 * WARPS)
#define QUERIES (16 * WARPS)
#define KEYS 64
#define CHUNKS (HEAD_SIZE / 8)  // of 16 bytes in a row

// Chunks are permuted within their row, so that eight rows of a column are in different banks.
__device__ int swizzled(int row, int chunk) { return row * CHUNKS + (chunk ^ (row & 7)); }

// Copies KEYS rows asynchronously; rows from `tokens` on become zeros.
__device__ void copy_tile(uint4* tile, const __nv_bfloat16* from, int first, int tokens) {
  for (int i = threadIdx.x; i < KEYS * CHUNKS; i += THREADS) {
    int row = i / CHUNKS, chunk = i % CHUNKS, bytes = first + row < tokens ? 16 : 0;
    const __nv_bfloat16* source = bytes ? from + (first + row) * HEAD_SIZE + 8 * chunk : from;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(tile + swizzled(row, chunk))),
                 "l"(source), "r"(bytes)
                 : "memory");
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// Four 8 x 8 matrices; lane l addresses row l % 8 of matrix l / 8.
__device__ void load_matrices(unsigned (&parts)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

__device__ void load_matrices_transposed(unsigned (&parts)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

// sums (16 x 8) += left (16 x 16) * right (16 x 8), each spread over the warp's lanes.
__device__ void multiply_add(float (&sums)[4], const unsigned (&left)[4], unsigned right_0,
                             unsigned right_1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1));
}

__device__ float exp2_of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ unsigned pair(float first, float second) {
  __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<unsigned*>(&both);
}

// `scale` includes log2(e): 2^x gives the weights.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_mma(const __nv_bfloat16* Q, const __nv_bfloat16* K, const __nv_bfloat16* V,
                  __nv_bfloat16* O, int tokens, float scale) {
  __shared__ uint4 K_tile[KEYS * CHUNKS], V_tile[KEYS * CHUNKS];

  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int head = blockIdx.y, first_query = blockIdx.x * QUERIES;
  int row = first_query + 16 * warp + lane / 4;  // a lane has parts of this row and of row + 8
  int column = lane % 4 * 2;                     // and of each 8 columns two, from this one on
  int offset = head * tokens * HEAD_SIZE;
  Q += offset, K += offset, V += offset, O += offset;
  copy_tile(K_tile, K, 0, tokens);

  unsigned q[HEAD_SIZE / 16][4];
#pragma unroll
  for (int d = 0; d < HEAD_SIZE / 16; ++d) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int query = row + i % 2 * 8;
      const __nv_bfloat16* from = Q + query * HEAD_SIZE + 16 * d + i / 2 * 8 + column;
      q[d][i] = query < tokens ? *reinterpret_cast<const unsigned*>(from) : 0;
    }
  }

  float out[HEAD_SIZE / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  int keys = CAUSAL ? min(first_query + QUERIES, tokens) : tokens;
  for (int start = 0; start < keys; start += KEYS) {
    wait_for_copies();
    __syncthreads();  // K is complete for all threads, and V is read before it is overwritten
    copy_tile(V_tile, V, start, tokens);

    float scores[KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < HEAD_SIZE / 16; ++d) {
#pragma unroll
      for (int c = 0; c < KEYS / 8; c += 2) {  // 16 keys
        unsigned right[4];
        load_matrices(right, K_tile + swizzled(8 * (c + lane / 16) + lane % 8, 2 * d + lane / 8 % 2));
        multiply_add(scores[c], q[d], right[0], right[1]);
        multiply_add(scores[c + 1], q[d], right[2], right[3]);
      }
    }

    if (start + KEYS > (CAUSAL ? min(first_query + 1, tokens) : tokens)) {  // some row misses a key
#pragma unroll
      for (int c = 0; c < KEYS / 8; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int visible = CAUSAL ? min(row + i / 2 * 8 + 1, tokens) : tokens;
          if (start + 8 * c + column + i % 2 >= visible) scores[c][i] = -INFINITY;
        }
      }
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = largest[half];
#pragma unroll
      for (int c = 0; c < KEYS / 8; ++c) {
        top = fmaxf(top, fmaxf(scores[c][2 * half], scores[c][2 * half + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));  // the four lanes of a row
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
      float correction = exp2_of((largest[half] - top) * scale);
      largest[half] = top;
      sum[half] *= correction;
#pragma unroll
      for (int c = 0; c < HEAD_SIZE / 8; ++c) {
        out[c][2 * half] *= correction, out[c][2 * half + 1] *= correction;
      }
#pragma unroll
      for (int c = 0; c < KEYS / 8; ++c) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[c][i] = exp2_of(fmaf(scores[c][i], scale, -top * scale));
          sum[half] += scores[c][i];  // of this lane alone, until the end
        }
      }
    }

    wait_for_copies();
    __syncthreads();  // V is complete for all threads, and K is read before it is overwritten
    if (start + KEYS < keys) copy_tile(K_tile, K, start + KEYS, tokens);

#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
      unsigned weights[4];
      for (int i = 0; i < 4; ++i) {
        float* pair_of_scores = &scores[2 * k + i / 2][i % 2 * 2];
        weights[i] = pair(pair_of_scores[0], pair_of_scores[1]);
      }
#pragma unroll
      for (int c = 0; c < HEAD_SIZE / 8; c += 2) {
        unsigned right[4];
        load_matrices_transposed(right, V_tile + swizzled(16 * k + lane % 16, c + lane / 16));
        multiply_add(out[c], weights, right[0], right[1]);
        multiply_add(out[c + 1], weights, right[2], right[3]);
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffff, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffff, sum[half], 2);
    float factor = 1.0f / sum[half];
#pragma unroll
    for (int c = 0; c < HEAD_SIZE / 8; ++c) {
      if (row + 8 * half < tokens) {
        unsigned* to = reinterpret_cast<unsigned*>(O + (row + 8 * half) * HEAD_SIZE + 8 * c + column);
        *to = pair(out[c][2 * half] * factor, out[c][2 * half + 1] * factor);
      }
    }
  }
}
