// Transpose 1: a square is transposed in shared memory, so that whole rows are read and written.
//
// b (width x height) = a (height x width) transposed, float32, row-major, any sizes.
//
// What to expect: 4 sectors per request in both directions. In exchange a warp reads a column of the
// square, whose words are 32 apart: all in one bank, 32 wavefronts instead of 1.

extern "C" __global__ void transpose_shared(const float* a, float* b, int width, int height) {
  __shared__ float square[32][32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) {
    if (x < width && y + j < height) {
      square[threadIdx.y + j][threadIdx.x] = a[(y + j) * width + x];
    }
  }
  __syncthreads();

  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) {
    if (x < height && y + j < width) {
      b[(y + j) * height + x] = square[threadIdx.x][threadIdx.y + j];
    }
  }
}
