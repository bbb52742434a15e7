// Image blur: each pixel becomes the mean of its neighbors, all read from global memory.
//
// out[row][column] = mean of in over the (2 RADIUS + 1)^2 pixels around it that are inside the
// image; float32, any sizes. RADIUS is fixed when the kernel is compiled.
//
// What to expect: one addition per pixel read, so the ratio of the lessons: 1 FLOP per access,
// 0.25 FLOP/B. Neighboring threads read almost the same pixels, nearly all of them from caches.

extern "C" __global__ void blur(const float* in, float* out, int width, int height) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;

  if (column < width && row < height) {
    float sum = 0.0f;
    int pixels = 0;
    for (int down = -RADIUS; down < RADIUS + 1; ++down) {
      for (int right = -RADIUS; right < RADIUS + 1; ++right) {
        int y = row + down, x = column + right;
        if (y > -1 && y < height && x > -1 && x < width) {
          sum += in[y * width + x];
          ++pixels;
        }
      }
    }
    out[row * width + column] = sum / pixels;
  }
}
