// Figure 4.20 of "Programming Massively Parallel Processors" (third edition), which loads only
// what lies inside the matrices but puts no zero where it loads nothing: what the phase before
// left in shared memory, or nothing at all, is multiplied.
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
  for (int ph = 0; ph < ceil(Width / (float)TILE); ++ph) {
    if ((Row < Width) && (ph * TILE + tx) < Width)
      Mds[ty][tx] = M[Row * Width + ph * TILE + tx];
#ifdef FIXED
    else
      Mds[ty][tx] = 0;
#endif
    if ((ph * TILE + ty) < Width && Col < Width)
      Nds[ty][tx] = N[(ph * TILE + ty) * Width + Col];
#ifdef FIXED
    else
      Nds[ty][tx] = 0;
#endif
    __syncthreads();
    for (int k = 0; k < TILE; ++k) {
      Pvalue += Mds[ty][k] * Nds[k][tx];  // BUG initcheck: uninitialized read
    }
    __syncthreads();
  }
  if ((Row < Width) && (Col < Width)) P[Row * Width + Col] = Pvalue;
}
