// Step 1: the threads of a block stage square tiles of M and N in shared memory and share them.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. TILE is the edge of a tile and
// of the block, fixed when the kernel is compiled.
//
// What to expect: every element that is loaded from global memory is used TILE times, so the
// requested intensity is TILE / 4 FLOP/B. The inner product reads shared memory: two loads per FMA
// become the new limit.
//
// Published listings of this kernel have several mistakes, each with a wrong result: N is read at
// [(row + phase * TILE) * width + tx] instead of [(phase * TILE + ty) * width + column]; the sum is
// an int; tiles are not zeroed beyond the edge, so values of the previous phase are multiplied; for
// rectangular matrices row < k and column < k instead of row < m and column < n, and P[row * m +
// column] instead of P[row * n + column]; the store has no guard.

extern "C" __global__ void tiled(const float* M, const float* N, float* P, int m, int k, int n) {
  __shared__ float M_tile[TILE][TILE], N_tile[TILE][TILE];

  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty;
  int column = blockIdx.x * TILE + tx;

  float sum = 0.0f;
  for (int phase = 0; phase < (k + TILE - 1) / TILE; ++phase) {
    // Beyond the edge a tile holds zeros, which add nothing to the sum. No thread returns early:
    // all of them have to reach the barriers.
    int i = phase * TILE + tx, j = phase * TILE + ty;
    M_tile[ty][tx] = (row < m && i < k) ? M[row * k + i] : 0.0f;
    N_tile[ty][tx] = (column < n && j < k) ? N[j * n + column] : 0.0f;
    __syncthreads();  // the tiles are complete before they are read

    for (int t = 0; t < TILE; ++t) {
      sum += M_tile[ty][t] * N_tile[t][tx];
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

  if (row < m && column < n) {
    P[row * n + column] = sum;
  }
}
