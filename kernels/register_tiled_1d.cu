// Step 4: one thread computes PER_THREAD elements of a column of P; the tiles become flat.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. A block computes TILE x TILE
// elements with TILE * TILE / PER_THREAD threads. Its tiles are TILE x DEPTH of M and DEPTH x TILE
// of N, with DEPTH = TILE / PER_THREAD, so that each thread loads one element of each.
//
// What to expect: a thread reads its element of a row of N once for PER_THREAD FMAs and keeps it in a
// register. The elements of M are broadcasts from consecutive words along k, of which the compiler
// loads four at a time. The same shared memory serves a tile of P that is PER_THREAD / 2 times as
// large as that of `tiled`, and every element loaded from global memory is used TILE times.

#define DEPTH (TILE / PER_THREAD)

extern "C" __global__ void __launch_bounds__(TILE * DEPTH)
    register_tiled_1d(const float* M, const float* N, float* P, int m, int k, int n) {
  __shared__ float M_tile[TILE][DEPTH], N_tile[DEPTH][TILE];

  int thread = threadIdx.x;
  int tx = thread % TILE, ty = thread / TILE;        // the column and the PER_THREAD rows of this thread
  int M_tx = thread % DEPTH, M_ty = thread / DEPTH;  // the element of M_tile to load
  int first_row = blockIdx.y * TILE, column = blockIdx.x * TILE + tx;

  float sums[PER_THREAD] = {};
  for (int start = 0; start < k; start += DEPTH) {
    // Beyond the edge a tile holds zeros, which add nothing to the sum.
    int row = first_row + M_ty, i = start + M_tx, j = start + ty;
    M_tile[M_ty][M_tx] = (row < m && i < k) ? M[row * k + i] : 0.0f;
    N_tile[ty][tx] = (column < n && j < k) ? N[j * n + column] : 0.0f;
    __syncthreads();  // the tiles are complete before they are read

    for (int d = 0; d < DEPTH; ++d) {
      float right = N_tile[d][tx];
      for (int r = 0; r < PER_THREAD; ++r) {
        sums[r] += M_tile[ty * PER_THREAD + r][d] * right;
      }
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

  for (int r = 0; r < PER_THREAD; ++r) {
    int row = first_row + ty * PER_THREAD + r;
    if (row < m && column < n) {
      P[row * n + column] = sums[r];
    }
  }
}
