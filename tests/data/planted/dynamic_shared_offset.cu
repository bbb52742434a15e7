// The tiled product with both tiles in one dynamic array, as chapter 5 of "Programming Massively
// Parallel Processors" (fourth edition) launches it: the kernel is told the size of each half in
// bytes, and takes that for a number of elements.
//
// launch: --grid 2,2 --block 16,16 --shared 2048 --arg in:f32[32,32] --arg in:f32[32,32] --arg out:f32[32,32] --arg i32=32 --arg u32=1024 --arg u32=1024
// reference: dynamic
#define TILE_WIDTH 16

__global__ void matrixMulKernel(const float* M, const float* N, float* P, int Width,
                                unsigned Mds_sz, unsigned Nds_sz) {
  extern __shared__ float Mds_Nds[];
  float* Mds = Mds_Nds;
#ifdef FIXED
  float* Nds = Mds_Nds + Mds_sz / sizeof(float);
#else
  float* Nds = Mds_Nds + Mds_sz;
#endif
  int tx = threadIdx.x, ty = threadIdx.y;
  int Row = blockIdx.y * TILE_WIDTH + ty;
  int Col = blockIdx.x * TILE_WIDTH + tx;
  float Pvalue = 0;
  for (int ph = 0; ph < Width / TILE_WIDTH; ++ph) {
    Mds[ty * TILE_WIDTH + tx] = M[Row * Width + ph * TILE_WIDTH + tx];
    Nds[ty * TILE_WIDTH + tx] = N[(ph * TILE_WIDTH + ty) * Width + Col];  // BUG memcheck: out of bounds
    __syncthreads();
    for (int k = 0; k < TILE_WIDTH; ++k) {
      Pvalue += Mds[ty * TILE_WIDTH + k] * Nds[k * TILE_WIDTH + tx];  // BUG memcheck: out of bounds
    }
    __syncthreads();
  }
  P[Row * Width + Col] = Pvalue;
}
