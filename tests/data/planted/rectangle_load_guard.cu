// The tiled product for rectangles of notes on chapter 5 of "Programming Massively Parallel
// Processors" (fourth edition): M is j x k, N is k x l, P is j x l, and the loads are guarded by
// `Row < k` and `Col < k`, and N is subscripted as if its rows were k long.
//
// launch: --grid 2,2 --block 16,16 --arg in:f32[24,40] --arg in:f32[40,24] --arg out:f32[24,24] --arg i32=24 --arg i32=40 --arg i32=24
// reference: rectangle
#define TILE_WIDTH 16

__global__ void MatrixMulKernel(const float* M, const float* N, float* P, int j, int k, int l) {
  __shared__ float ds_M[TILE_WIDTH][TILE_WIDTH];
  __shared__ float ds_N[TILE_WIDTH][TILE_WIDTH];
  int tx = threadIdx.x, ty = threadIdx.y;
  int Row = blockIdx.y * blockDim.y + ty;
  int Col = blockIdx.x * blockDim.x + tx;
  float Pvalue = 0;
  for (int p = 0; p < ceil(k / (float)TILE_WIDTH); ++p) {
#ifdef FIXED
    if (p * TILE_WIDTH + tx < k && Row < j) {
      ds_M[ty][tx] = M[Row * k + p * TILE_WIDTH + tx];
    } else ds_M[ty][tx] = 0.0f;
    if (p * TILE_WIDTH + ty < k && Col < l) {
      ds_N[ty][tx] = N[(p * TILE_WIDTH + ty) * l + Col];
    } else ds_N[ty][tx] = 0.0f;
#else
    if (p * TILE_WIDTH + tx < k && Row < k) {
      ds_M[ty][tx] = M[Row * k + p * TILE_WIDTH + tx];  // BUG memcheck: out of bounds
    } else ds_M[ty][tx] = 0.0f;
    if (p * TILE_WIDTH + ty < k && Col < k) {
      ds_N[ty][tx] = N[(p * TILE_WIDTH + ty) * k + Col];  // BUG memcheck: out of bounds
    } else ds_N[ty][tx] = 0.0f;
#endif
    __syncthreads();
    for (int i = 0; i < TILE_WIDTH; ++i) Pvalue += ds_M[ty][i] * ds_N[i][tx];
    __syncthreads();
  }
  if (Row < j && Col < l) P[Row * l + Col] = Pvalue;
}
