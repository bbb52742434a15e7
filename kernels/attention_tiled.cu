// Attention in one kernel: the scores never leave the multiprocessor (FlashAttention's idea).
//
// O (heads x tokens x HEAD_SIZE) = softmax(scale * Q K^T) V for each head, all row-major in float32. A
// block takes QUERIES rows of Q and goes through the keys, KEYS at a time, in shared memory. Of each
// row it keeps the largest score so far, the sum of its weights and its weighted values so far, all
// relative to that score. When a tile has a larger one, sum and values are multiplied by
// exp(old - new): the *online softmax* (Milakov and Gimelshein, arXiv:1805.02867; Dao et al.,
// "FlashAttention", NeurIPS 2022). With CAUSAL a query sees no later key, and tiles in which no query
// sees a key are skipped.
//
// What to expect: DRAM moves Q, K, V and O once, so the intensity grows with the number of tokens, and
// the ceiling is the rate of FP32. K and V are read again by each block of queries, from the L2. A
// thread computes 4 x 4 scores and 4 x HEAD_SIZE / 16 outputs from registers, as in register-tiled-2d.

#define QUERIES 64
#define KEYS 64
#define THREADS 256
#define ROWS 4  // queries of a thread; 16 threads share them
#define PITCH (HEAD_SIZE + 4)  // floats from row to row: rows start in different banks
#define P_PITCH (KEYS + 4)

__device__ void load_tile(float* tile, const float* from, int first, int tokens) {
  for (int i = threadIdx.x; i < KEYS * HEAD_SIZE / 4; i += THREADS) {
    int row = i / (HEAD_SIZE / 4), column = i % (HEAD_SIZE / 4) * 4;
    float4 part = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (first + row < tokens) {
      part = *reinterpret_cast<const float4*>(from + (first + row) * HEAD_SIZE + column);
    }
    *reinterpret_cast<float4*>(tile + row * PITCH + column) = part;
  }
}

// Over the 16 threads that share rows.
__device__ float largest_of_row(float value) {
  for (int distance = 8; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

__device__ float sum_of_row(float value) {
  for (int distance = 8; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// `scale` includes log2(e), so that exp2f gives the weights.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled(const float* Q, const float* K, const float* V, float* O, int tokens,
                    float scale) {
  extern __shared__ float4 shared[];
  float* Q_tile = reinterpret_cast<float*>(shared);
  float* KV_tile = Q_tile + QUERIES * PITCH;  // a tile of K, then one of V
  float* P_tile = KV_tile + KEYS * PITCH;

  int head = blockIdx.y, first_query = blockIdx.x * QUERIES;
  int part = threadIdx.x % 16, first_row = threadIdx.x / 16 * ROWS;
  int offset = head * tokens * HEAD_SIZE;
  load_tile(Q_tile, Q + offset, first_query, tokens);

  float largest[ROWS], sum[ROWS] = {}, out[ROWS][HEAD_SIZE / 16] = {};
  for (int r = 0; r < ROWS; ++r) largest[r] = -INFINITY;

  int keys = CAUSAL ? min(first_query + QUERIES, tokens) : tokens;
  for (int start = 0; start < keys; start += KEYS) {
    __syncthreads();  // the tile of V is read before it is overwritten
    load_tile(KV_tile, K + offset, start, tokens);
    __syncthreads();  // the tiles are complete before they are read

    float scores[ROWS][4] = {};  // of the keys part, part + 16, part + 32 and part + 48
    for (int i = 0; i < HEAD_SIZE; i += 4) {
      float4 q[ROWS], k[4];
      for (int r = 0; r < ROWS; ++r) {
        q[r] = *reinterpret_cast<float4*>(Q_tile + (first_row + r) * PITCH + i);
      }
      for (int c = 0; c < 4; ++c) {
        k[c] = *reinterpret_cast<float4*>(KV_tile + (part + 16 * c) * PITCH + i);
      }
      for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < 4; ++c) {
          scores[r][c] += q[r].x * k[c].x;
          scores[r][c] += q[r].y * k[c].y;
          scores[r][c] += q[r].z * k[c].z;
          scores[r][c] += q[r].w * k[c].w;
        }
      }
    }

    for (int r = 0; r < ROWS; ++r) {
      int visible = CAUSAL ? min(first_query + first_row + r + 1, tokens) : tokens;
      float top = largest[r];
      for (int c = 0; c < 4; ++c) {
        bool seen = start + part + 16 * c < visible;
        scores[r][c] = seen ? scale * scores[r][c] : -INFINITY;
        top = fmaxf(top, scores[r][c]);
      }
      top = largest_of_row(top);  // finite from the first tile on, in which each row sees a key
      float correction = exp2f(largest[r] - top);
      largest[r] = top;
      sum[r] *= correction;
      for (int c = 0; c < HEAD_SIZE / 16; ++c) out[r][c] *= correction;
      for (int c = 0; c < 4; ++c) {
        float weight = exp2f(scores[r][c] - top);
        sum[r] += weight;
        P_tile[(first_row + r) * P_PITCH + part + 16 * c] = weight;
      }
    }

    __syncthreads();  // the tile of K is read before it is overwritten
    load_tile(KV_tile, V + offset, start, tokens);
    __syncthreads();  // the tiles of V and of weights are complete before they are read

    for (int key = 0; key < KEYS; key += 4) {
      float4 p[ROWS];
      for (int r = 0; r < ROWS; ++r) {
        p[r] = *reinterpret_cast<float4*>(P_tile + (first_row + r) * P_PITCH + key);
      }
      for (int c = 0; c < HEAD_SIZE / 16; c += 4) {  // columns 4 * part to 4 * part + 3, and + 64
        const float* column = KV_tile + key * PITCH + 16 * c + 4 * part;
        for (int i = 0; i < 4; ++i) {
          float4 v = *reinterpret_cast<const float4*>(column + i * PITCH);
          for (int r = 0; r < ROWS; ++r) {
            float weight = i == 0 ? p[r].x : i == 1 ? p[r].y : i == 2 ? p[r].z : p[r].w;
            out[r][c] += weight * v.x;
            out[r][c + 1] += weight * v.y;
            out[r][c + 2] += weight * v.z;
            out[r][c + 3] += weight * v.w;
          }
        }
      }
    }
  }

  for (int r = 0; r < ROWS; ++r) {
    int query = first_query + first_row + r;
    float factor = 1.0f / sum_of_row(sum[r]);
    for (int c = 0; c < HEAD_SIZE / 16 && query < tokens; c += 4) {
      *reinterpret_cast<float4*>(O + offset + query * HEAD_SIZE + 16 * c + 4 * part) =
          make_float4(out[r][c] * factor, out[r][c + 1] * factor, out[r][c + 2] * factor,
                      out[r][c + 3] * factor);
    }
  }
}
