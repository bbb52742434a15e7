// Attention in three kernels, the third: the values, weighted.
//
// O (heads x tokens x HEAD_SIZE) = P V for each head; P is heads x tokens x tokens, V as O. It is the
// product of `tiled`: a block computes TILE x TILE elements of O from tiles in shared memory. With
// CAUSAL the weights of later keys are zero and are not read.
//
// What to expect: 2 HEAD_SIZE FLOPs for each weight of 4 bytes, as in the first kernel. A block row of
// P is read by the HEAD_SIZE / TILE blocks that need it, all but the first from the L2.

#define TILE 16

extern "C" __global__ void attention_values(const float* P, const float* V, float* O, int tokens) {
  __shared__ float P_tile[TILE][TILE];
  __shared__ float V_tile[TILE][TILE];

  int head = blockIdx.z, first_query = blockIdx.y * TILE;
  int query = first_query + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  int keys = CAUSAL ? min(first_query + TILE, tokens) : tokens;

  float sum = 0.0f;
  for (int start = 0; start < keys; start += TILE) {
    int key = start + threadIdx.x, row_of_V = start + threadIdx.y;
    P_tile[threadIdx.y][threadIdx.x] =
        query < tokens && key < keys ? P[(head * tokens + query) * tokens + key] : 0.0f;
    V_tile[threadIdx.y][threadIdx.x] =
        row_of_V < keys ? V[(head * tokens + row_of_V) * HEAD_SIZE + column] : 0.0f;
    __syncthreads();  // the tiles are complete before they are read
    for (int i = 0; i < TILE; ++i) {
      bool seen = !CAUSAL || start + i <= query;
      sum += seen ? P_tile[threadIdx.y][i] * V_tile[i][threadIdx.x] : 0.0f;
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }
  if (query < tokens) {
    O[(head * tokens + query) * HEAD_SIZE + column] = sum;
  }
}
