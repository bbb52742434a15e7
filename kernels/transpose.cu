// Transpose 0: each thread moves four elements directly from a row to a column.
//
// b (width x height) = a (height x width) transposed, float32, row-major, any sizes. 32 x 8 threads
// move a square of 32 x 32.
//
// What to expect: a warp reads 32 neighboring elements of a row, 4 sectors per request, and writes
// them `height` words apart, 32 sectors. One of the two is always uncoalesced.

extern "C" __global__ void transpose(const float* a, float* b, int width, int height) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) {
    if (x < width && y + j < height) {
      b[x * height + y + j] = a[(y + j) * width + x];
    }
  }
}
