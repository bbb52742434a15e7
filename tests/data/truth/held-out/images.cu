// Images and grids: convolutions, pooling, stencils, cellular automata.

// Each channel by its own 3 x 3 filter; images have a border of one pixel.
extern "C" __global__ void convolve_depthwise(const float* in, const float* weight, float* out,
                                              int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int c = blockIdx.z, pitch = width + 2;
  if (x >= width || y >= height) return;
  const float* from = in + (size_t)c * pitch * (height + 2) + y * pitch + x;
  float sum = 0.0f;
#pragma unroll
  for (int r = 0; r < 3; r++)
#pragma unroll
    for (int q = 0; q < 3; q++) sum += from[r * pitch + q] * weight[c * 9 + r * 3 + q];
  out[((size_t)c * height + y) * width + x] = sum;
}

// The columns that turn a 3 x 3 convolution into a product.
extern "C" __global__ void image_to_columns(const float* in, float* out, int channels, int width,
                                            int height) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, size = width * height;
  if (i >= channels * size) return;
  int c = i / size, y = i % size / width, x = i % width;
  for (int k = 0; k < 9; k++) {
    int v = y + k / 3 - 1, u = x + k % 3 - 1;
    bool inside = v >= 0 && v < height && u >= 0 && u < width;
    out[((size_t)c * 9 + k) * size + y * width + x] =
        inside ? in[(size_t)c * size + v * width + u] : 0.0f;
  }
}

extern "C" __global__ void pool_max(const float* in, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const float* from = in + ((size_t)blockIdx.z * 2 * height + 2 * y) * 2 * width + 2 * x;
  float top = fmaxf(from[0], from[1]), bottom = fmaxf(from[2 * width], from[2 * width + 1]);
  out[((size_t)blockIdx.z * height + y) * width + x] = fmaxf(top, bottom);
}

// The box of 17 x 17 around each pixel along rows only, from a tile with its halo.
extern "C" __global__ void blur_rows(const float* in, float* out, int width) {
  constexpr int kRadius = 8;
  __shared__ float tile[256 + 2 * kRadius];
  int x = blockIdx.x * 256 + threadIdx.x;
  const float* row = in + (size_t)blockIdx.y * width;
  tile[threadIdx.x + kRadius] = row[x];
  if (threadIdx.x < kRadius) {
    tile[threadIdx.x] = x >= kRadius ? row[x - kRadius] : 0.0f;
    tile[threadIdx.x + 256 + kRadius] = x + 256 < width ? row[x + 256] : 0.0f;
  }
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k <= 2 * kRadius; k++) sum += tile[threadIdx.x + k];
  out[(size_t)blockIdx.y * width + x] = sum / (2 * kRadius + 1);
}

// The star of 25 points (eighth order), marching along z with a tile of each plane.
extern "C" __global__ void star_3d(const float* in, float* out, int nx, int ny, int nz) {
  constexpr int kR = 4;
  __shared__ float tile[16 + 2 * kR][32 + 2 * kR];
  const float w[5] = {-2.84722f, 1.6f, -0.2f, 0.0253968f, -0.00178571f};
  int x = blockIdx.x * 32 + threadIdx.x + kR, y = blockIdx.y * 16 + threadIdx.y + kR;
  int tx = threadIdx.x + kR, ty = threadIdx.y + kR;
  size_t plane = (size_t)nx * ny, at = (size_t)y * nx + x;
  float column[2 * kR + 1];
#pragma unroll
  for (int k = 0; k < 2 * kR; k++) column[k + 1] = in[at + k * plane];
  for (int z = kR; z < nz - kR; z++) {
#pragma unroll
    for (int k = 0; k < 2 * kR; k++) column[k] = column[k + 1];
    column[2 * kR] = in[at + (z + kR) * plane];
    __syncthreads();
    tile[ty][tx] = column[kR];
    if (threadIdx.x < kR) {
      tile[ty][threadIdx.x] = in[at + z * plane - kR];
      tile[ty][tx + 32] = in[at + z * plane + 32];
    }
    if (threadIdx.y < kR) {
      tile[threadIdx.y][tx] = in[at + z * plane - (size_t)kR * nx];
      tile[ty + 16][tx] = in[at + z * plane + (size_t)16 * nx];
    }
    __syncthreads();
    float sum = 3 * w[0] * column[kR];
#pragma unroll
    for (int k = 1; k <= kR; k++) {
      sum += w[k] * (column[kR - k] + column[kR + k] + tile[ty][tx - k] + tile[ty][tx + k] +
                     tile[ty - k][tx] + tile[ty + k][tx]);
    }
    out[at + z * plane] = sum;
  }
}

// Conway's game of life on a torus, a byte per cell.
extern "C" __global__ void life(const unsigned char* in, unsigned char* out, int width,
                                int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int left = (x + width - 1) % width, right = (x + 1) % width;
  int above = (y + height - 1) % height * width, below = (y + 1) % height * width, row = y * width;
  int around = in[above + left] + in[above + x] + in[above + right] + in[row + left] +
               in[row + right] + in[below + left] + in[below + x] + in[below + right];
  out[row + x] = around == 3 || (around == 2 && in[row + x]);
}

// One step of all shortest paths: through vertex k.
extern "C" __global__ void shortest_paths(float* distance, int n, int k) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= n) return;
  float through = distance[(size_t)i * n + k] + distance[(size_t)k * n + j];
  if (through < distance[(size_t)i * n + j]) distance[(size_t)i * n + j] = through;
}
