// The tiled product with boundary checks of notes on section 5.5 of "Programming Massively Parallel
// Processors" (fourth edition), whose last store has no guard: threads below the matrix write past
// its end, threads right of it write zeros into the next row.
//
// launch: --grid 3,3 --block 16,16 --arg in:f32[40,40] --arg in:f32[40,40] --arg out:f32[40,40] --arg i32=40
// reference: product
#define TILE 16

__global__ void matmul(const float* A, const float* B, float* C, int N) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int i = blockIdx.y * TILE + ty;
  int j = blockIdx.x * TILE + tx;
  float C_ij = 0;
  for (int ph = 0; ph < (N + TILE - 1) / TILE; ph++) {
    if (i < N && ph * TILE + tx < N) {
      As[ty][tx] = A[i * N + ph * TILE + tx];
    } else {
      As[ty][tx] = 0.0f;
    }
    if (ph * TILE + ty < N && j < N) {
      Bs[ty][tx] = B[(ph * TILE + ty) * N + j];
    } else {
      Bs[ty][tx] = 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < TILE; k++) C_ij += As[ty][k] * Bs[k][tx];
    __syncthreads();
  }
#ifdef FIXED
  if (i < N && j < N) C[i * N + j] = C_ij;
#else
  C[i * N + j] = C_ij;  // BUG memcheck: out of bounds; racecheck: WAW
#endif
}
