// Step 5: one thread computes PER_THREAD x PER_THREAD elements of P from registers.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. A block computes TILE x TILE
// elements with (TILE / PER_THREAD)^2 threads; its tiles are TILE x DEPTH of M and DEPTH x TILE of
// N. A thread's rows and columns are TILE / PER_THREAD apart, so that neighboring threads read
// neighboring words of shared memory, without bank conflicts, and write neighboring words of P.
//
// What to expect: 2 * PER_THREAD values read from shared memory serve PER_THREAD^2 FMAs, an outer
// product in registers. The shared-memory port is no longer the limit. In exchange a thread needs
// PER_THREAD^2 + 2 * PER_THREAD registers, so fewer warps are resident.

#define DEPTH 8
#define THREADS_ACROSS (TILE / PER_THREAD)
#define THREADS (THREADS_ACROSS * THREADS_ACROSS)

extern "C" __global__ void __launch_bounds__(THREADS)
    register_tiled_2d(const float* M, const float* N, float* P, int m, int k, int n) {
  __shared__ float M_tile[TILE][DEPTH], N_tile[DEPTH][TILE];

  int thread = threadIdx.x;
  int tx = thread % THREADS_ACROSS, ty = thread / THREADS_ACROSS;
  int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;

  float sums[PER_THREAD][PER_THREAD] = {};
  for (int start = 0; start < k; start += DEPTH) {
    // All threads load both tiles together. Beyond the edge are zeros, which add nothing.
    for (int e = thread; e < TILE * DEPTH; e += THREADS) {
      int row = first_row + e / DEPTH, i = start + e % DEPTH;
      M_tile[e / DEPTH][e % DEPTH] = (row < m && i < k) ? M[row * k + i] : 0.0f;
      int column = first_column + e % TILE, j = start + e / TILE;
      N_tile[e / TILE][e % TILE] = (column < n && j < k) ? N[j * n + column] : 0.0f;
    }
    __syncthreads();  // the tiles are complete before they are read

    for (int d = 0; d < DEPTH; ++d) {
      float left[PER_THREAD], right[PER_THREAD];
      for (int r = 0; r < PER_THREAD; ++r) {
        left[r] = M_tile[r * THREADS_ACROSS + ty][d];
        right[r] = N_tile[d][r * THREADS_ACROSS + tx];
      }
      for (int r = 0; r < PER_THREAD; ++r) {
        for (int c = 0; c < PER_THREAD; ++c) {
          sums[r][c] += left[r] * right[c];
        }
      }
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

  for (int r = 0; r < PER_THREAD; ++r) {
    for (int c = 0; c < PER_THREAD; ++c) {
      int row = first_row + r * THREADS_ACROSS + ty;
      int column = first_column + c * THREADS_ACROSS + tx;
      if (row < m && column < n) {
        P[row * n + column] = sums[r][c];
      }
    }
  }
}
