// Attention in three kernels, the first: how well each query matches each key.
//
// S (heads x tokens x tokens) = scale * Q K^T for each head; Q and K are heads x tokens x HEAD_SIZE,
// row-major. A block computes TILE x TILE scores of one head from tiles in shared memory. With CAUSAL
// a query sees no later key: these scores are minus infinity.
//
// What to expect: a head of n tokens reads 2 n HEAD_SIZE numbers and writes n^2, so the scores are
// nearly all of the traffic: 2 HEAD_SIZE FLOPs for each 4 bytes. And they are written only to be read
// again: the next kernel starts with all of them in DRAM.

#define TILE 16

extern "C" __global__ void attention_scores(const float* Q, const float* K, float* S, int tokens,
                                            float scale) {
  __shared__ float Q_tile[TILE][TILE];
  __shared__ float K_tile[TILE][TILE + 1];  // read by columns: padded, so that banks differ

  int head = blockIdx.z, first_query = blockIdx.y * TILE, first_key = blockIdx.x * TILE;
  int query = first_query + threadIdx.y, key = first_key + threadIdx.x;
  Q += head * tokens * HEAD_SIZE;
  K += head * tokens * HEAD_SIZE;

  float sum = 0.0f;
  if (!CAUSAL || first_key < first_query + TILE) {  // else no query of the block sees a key of it
    for (int start = 0; start < HEAD_SIZE; start += TILE) {
      int column = start + threadIdx.x, row_of_K = first_key + threadIdx.y;
      Q_tile[threadIdx.y][threadIdx.x] = query < tokens ? Q[query * HEAD_SIZE + column] : 0.0f;
      K_tile[threadIdx.y][threadIdx.x] =
          row_of_K < tokens ? K[row_of_K * HEAD_SIZE + column] : 0.0f;
      __syncthreads();  // the tiles are complete before they are read
      for (int i = 0; i < TILE; ++i) {
        sum += Q_tile[threadIdx.y][i] * K_tile[threadIdx.x][i];
      }
      __syncthreads();  // the tiles are read before they are overwritten
    }
  }
  if (query < tokens && key < tokens) {
    bool hidden = CAUSAL && key > query;
    S[(head * tokens + query) * tokens + key] = hidden ? -INFINITY : scale * sum;
  }
}
