// Image blur, step 1: a block stages its pixels and the border around them in shared memory.
//
// out[row][column] = mean of in over the (2 RADIUS + 1)^2 pixels around it that are inside the
// image; float32, any sizes. The block has 32 x 8 threads: a warp is one row of it, which avoids
// bank conflicts; the tile is 2 RADIUS wider and higher.
//
// What to expect: a block reads a pixel from global memory about once instead of (2 RADIUS + 1)^2
// times. At radius 1 the caches achieve the same; the larger the radius, the more staging saves.
// Pixels outside the image are zeros in the tile, which add nothing to the sum; the number of pixels
// inside is computed from the position.

constexpr int COLUMNS = 32, ROWS = 8;

extern "C" __global__ void blur_tiled(const float* in, float* out, int width, int height) {
  __shared__ float tile[ROWS + 2 * RADIUS][COLUMNS + 2 * RADIUS];
  int tx = threadIdx.x, ty = threadIdx.y;
  int left = blockIdx.x * COLUMNS - RADIUS, top = blockIdx.y * ROWS - RADIUS;

  for (int i = ty; i < ROWS + 2 * RADIUS; i += ROWS) {
    for (int j = tx; j < COLUMNS + 2 * RADIUS; j += COLUMNS) {
      int y = top + i, x = left + j;
      bool inside = y > -1 && y < height && x > -1 && x < width;
      tile[i][j] = inside ? in[y * width + x] : 0.0f;
    }
  }
  __syncthreads();

  int column = left + RADIUS + tx, row = top + RADIUS + ty;
  if (column < width && row < height) {
    float sum = 0.0f;
    for (int i = 0; i < 2 * RADIUS + 1; ++i) {
      for (int j = 0; j < 2 * RADIUS + 1; ++j) {
        sum += tile[ty + i][tx + j];
      }
    }
    int rows = min(row + RADIUS, height - 1) - max(row - RADIUS, 0) + 1;
    int columns = min(column + RADIUS, width - 1) - max(column - RADIUS, 0) + 1;
    out[row * width + column] = sum / (rows * columns);
  }
}
