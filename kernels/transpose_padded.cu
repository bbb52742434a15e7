// Transpose 2: each row of the square in shared memory ends with one unused word.
//
// b (width x height) = a (height x width) transposed, float32, row-major, any sizes.
//
// What to expect: the words of a column are 33 apart and in 32 different banks: there is no conflict,
// and both global accesses are coalesced. The padding takes 128 bytes of shared memory per block.

extern "C" __global__ void transpose_padded(const float* a, float* b, int width, int height) {
  __shared__ float square[32][33];
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
