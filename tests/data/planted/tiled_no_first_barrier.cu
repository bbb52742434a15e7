// The tiled matrix product of "Programming Massively Parallel Processors" (third edition, figure
// 4.16) without the first barrier: tiles are read while they are still being
// loaded.
//
// launch: --grid 2,2 --block 16,16 --arg in:f32[32,32] --arg in:f32[32,32] --arg out:f32[32,32] --arg i32=32
#define TILE 16

__global__ void MatrixMulKernel(const float* M, const float* N, float* P, int Width) {
  __shared__ float Mds[TILE][TILE];
  __shared__ float Nds[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int Row = blockIdx.y * TILE + ty;
  int Col = blockIdx.x * TILE + tx;
  float Pvalue = 0;
  for (int ph = 0; ph < Width / TILE; ++ph) {
    Mds[ty][tx] = M[Row * Width + ph * TILE + tx];  // BUG racecheck: RAW
    Nds[ty][tx] = N[(ph * TILE + ty) * Width + Col];  // BUG racecheck: RAW
#ifdef FIXED
    __syncthreads();
#endif
    for (int k = 0; k < TILE; ++k) {
      Pvalue += Mds[ty][k] * Nds[k][tx];  // BUG racecheck: RAW
    }
    __syncthreads();
  }
  P[Row * Width + Col] = Pvalue;
}
