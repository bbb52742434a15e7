// Step 2: the tile is chosen at launch, within the limits of the device query.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. The edge of a tile is that of
// the square block, and one `extern __shared__` array, sized at launch, holds both tiles:
// 2 * tile * tile floats.
//
// What to expect: the same traffic in global memory as `tiled` with the same tile. The compiler does
// not know the tile, so it can neither unroll the inner product fully nor merge shared loads into
// wider ones. This is the cost of one binary for every device.

extern "C" __global__ void tiled_dynamic(const float* M, const float* N, float* P, int m, int k,
                                         int n) {
  extern __shared__ float tiles[];
  int tile = blockDim.x;
  float* M_tile = tiles;
  float* N_tile = tiles + tile * tile;

  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * tile + ty;
  int column = blockIdx.x * tile + tx;

  float sum = 0.0f;
  for (int phase = 0; phase < (k + tile - 1) / tile; ++phase) {
    int i = phase * tile + tx, j = phase * tile + ty;
    M_tile[ty * tile + tx] = (row < m && i < k) ? M[row * k + i] : 0.0f;
    N_tile[ty * tile + tx] = (column < n && j < k) ? N[j * n + column] : 0.0f;
    __syncthreads();  // the tiles are complete before they are read

    for (int t = 0; t < tile; ++t) {
      sum += M_tile[ty * tile + t] * N_tile[t * tile + tx];
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

  if (row < m && column < n) {
    P[row * n + column] = sum;
  }
}
