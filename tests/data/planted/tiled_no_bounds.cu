// The tiled matrix product of the listing that precedes figure 4.20 in "Programming Massively
// Parallel Processors" (third edition), launched at a width that is no multiple of the tile:
// rows below the last one are read and written past the end, columns right of the last one land in
// the next row, where another block writes too, and the phase at the edge is left out.
//
// launch: --grid 3,3 --block 16,16 --arg in:f32[40,40] --arg in:f32[40,40] --arg out:f32[40,40] --arg i32=40
// reference: product
#define TILE 16

__global__ void MatrixMulKernel(const float* M, const float* N, float* P, int Width) {
  __shared__ float Mds[TILE][TILE];
  __shared__ float Nds[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int Row = blockIdx.y * TILE + ty;
  int Col = blockIdx.x * TILE + tx;
  float Pvalue = 0;
#ifdef FIXED
  for (int ph = 0; ph < (Width + TILE - 1) / TILE; ++ph) {
    int m = ph * TILE + tx, n = ph * TILE + ty;
    Mds[ty][tx] = Row < Width && m < Width ? M[Row * Width + m] : 0;
    Nds[ty][tx] = n < Width && Col < Width ? N[n * Width + Col] : 0;
#else
  for (int ph = 0; ph < Width / TILE; ++ph) {
    Mds[ty][tx] = M[Row * Width + ph * TILE + tx];  // BUG memcheck: out of bounds
    Nds[ty][tx] = N[(ph * TILE + ty) * Width + Col];
#endif
    __syncthreads();
    for (int k = 0; k < TILE; ++k) Pvalue += Mds[ty][k] * Nds[k][tx];
    __syncthreads();
  }
#ifdef FIXED
  if (Row < Width && Col < Width) P[Row * Width + Col] = Pvalue;
#else
  P[Row * Width + Col] = Pvalue;  // BUG memcheck: out of bounds; racecheck: WAW
#endif
}
