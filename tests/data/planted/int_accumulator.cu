// The tiled product of notes on section 5.4 of "Programming Massively Parallel Processors" (fourth
// edition), which adds up in an `int`: every partial sum is cut off to a whole number. No access is
// wrong; comparing the output with a reference tells.
//
// launch: --grid 2,2 --block 16,16 --arg in:f32[32,32] --arg in:f32[32,32] --arg out:f32[32,32] --arg i32=32
// reference: product
#define TILE 16

__global__ void matmul(const float* A, const float* B, float* C, int N) {
  __shared__ float As[TILE][TILE];
  __shared__ float Bs[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int i = blockIdx.y * TILE + ty;
  int j = blockIdx.x * TILE + tx;
#ifdef FIXED
  float C_ij = 0;
#else
  int C_ij = 0;
#endif
  for (int ph = 0; ph < N / TILE; ph++) {
    As[ty][tx] = A[i * N + ph * TILE + tx];
    Bs[ty][tx] = B[(ph * TILE + ty) * N + j];
    __syncthreads();
    for (int k = 0; k < TILE; k++) C_ij += As[ty][k] * Bs[k][tx];
    __syncthreads();
  }
  C[i * N + j] = C_ij;
}
