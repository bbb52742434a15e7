// Corner turning 1: the tile of N is read along its columns and transposed in shared memory.
//
// P (m x n) = M (m x k) * N (k x n), float32, any sizes; M and P row-major, N column-major. TILE is
// the edge of a tile and of the block.
//
// What to expect: both operands are read coalesced although N is stored by columns, and each element
// TILE times less often. The thread that loads an element need not use it: neighboring threads load
// along a column, then multiply along a row. Each row of the transposed tile ends with PAD unused
// words, which avoids bank conflicts of its writes and reads (at TILE 8, 16 and 32).
//
// The listing of the course leaves the two loads open and indexes the tiles with the number of the
// phase, subTileM[m][tx]. A tile is indexed by its own rows and columns: ty and tx.

constexpr int PAD = TILE < 32 ? 32 / TILE : 1;

extern "C" __global__ void corner_turning(const float* M, const float* N, float* P, int m, int k,
                                          int n) {
  __shared__ float M_tile[TILE][TILE], N_tile[TILE][TILE + PAD];

  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty;
  int column = blockIdx.x * TILE + tx;
  int loaded_column = blockIdx.x * TILE + ty;

  float sum = 0.0f;
  for (int phase = 0; phase < (k + TILE - 1) / TILE; ++phase) {
    int i = phase * TILE + tx;  // both loads run along k, where elements are consecutive
    M_tile[ty][tx] = (row < m && i < k) ? M[row * k + i] : 0.0f;
    N_tile[tx][ty] = (loaded_column < n && i < k) ? N[loaded_column * k + i] : 0.0f;
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
