// The tiled matrix product of lesson 4, as a user kernel: C = A B, n a multiple of TILE.
#ifndef TILE
#define TILE 16
#endif

extern "C" __global__ void tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int column = blockIdx.x * TILE + tx, row = blockIdx.y * TILE + ty;
  float sum = 0.0f;
  for (int step = 0; step < n / TILE; ++step) {
    left[ty][tx] = a[row * n + step * TILE + tx];
    right[ty][tx] = b[(step * TILE + ty) * n + column];
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += left[ty][k] * right[k][tx];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
