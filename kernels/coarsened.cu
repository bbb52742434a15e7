// Step 3: one thread computes PER_THREAD elements of a row of P, a tile apart.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. A block of TILE x TILE threads
// computes TILE rows and PER_THREAD * TILE columns, from one tile of M and PER_THREAD tiles of N.
//
// What to expect: an element of M is read from shared memory once for PER_THREAD FMAs, which needs
// 1 + PER_THREAD shared loads where `tiled` needs 2 * PER_THREAD. M is also read from global memory
// PER_THREAD times less often, because fewer blocks need the same rows.

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    coarsened(const float* M, const float* N, float* P, int m, int k, int n) {
  __shared__ float M_tile[TILE][TILE], N_tile[PER_THREAD][TILE][TILE];

  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty;
  int first_column = blockIdx.x * PER_THREAD * TILE + tx;

  float sums[PER_THREAD] = {};
  for (int phase = 0; phase < (k + TILE - 1) / TILE; ++phase) {
    // Beyond the edge a tile holds zeros, which add nothing to the sum.
    int i = phase * TILE + tx, j = phase * TILE + ty;
    M_tile[ty][tx] = (row < m && i < k) ? M[row * k + i] : 0.0f;
    for (int c = 0; c < PER_THREAD; ++c) {
      int column = first_column + c * TILE;
      N_tile[c][ty][tx] = (column < n && j < k) ? N[j * n + column] : 0.0f;
    }
    __syncthreads();  // the tiles are complete before they are read

    for (int t = 0; t < TILE; ++t) {
      float left = M_tile[ty][t];
      for (int c = 0; c < PER_THREAD; ++c) {
        sums[c] += left * N_tile[c][t][tx];
      }
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

  for (int c = 0; c < PER_THREAD; ++c) {
    int column = first_column + c * TILE;
    if (row < m && column < n) {
      P[row * n + column] = sums[c];
    }
  }
}
