// Stencils and convolutions.

__constant__ float coefficients[49];

extern "C" __global__ void smooth_1d(const float* in, float* out, int n) {
  __shared__ float tile[256 + 8];
  int i = blockIdx.x * 256 + threadIdx.x;
  tile[threadIdx.x + 4] = i < n ? in[i] : 0.0f;
  if (threadIdx.x < 4) {
    tile[threadIdx.x] = i >= 4 ? in[i - 4] : 0.0f;
    tile[threadIdx.x + 260] = i + 256 < n ? in[i + 256] : 0.0f;
  }
  __syncthreads();
  float sum = 0.0f;
  for (int k = 0; k < 9; k++) sum += tile[threadIdx.x + k];
  if (i < n) out[i] = sum / 9.0f;
}

extern "C" __global__ void jacobi_2d(const float* in, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
  int i = y * width + x;
  out[i] = 0.25f * (in[i - 1] + in[i + 1] + in[i - width] + in[i + width]);
}

extern "C" __global__ void heat_3d(const float* in, float* out, int nx, int ny, int nz, float k) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
  int i = (z * ny + y) * nx + x;
  float around = in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - nx * ny] + in[i + nx * ny];
  out[i] = in[i] + k * (around - 6.0f * in[i]);
}

// Each thread goes through z and keeps three planes' elements in registers.
extern "C" __global__ void march_3d(const float* in, float* out, int nx, int ny, int nz, float k) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
  int plane = nx * ny, i = y * nx + x;
  float below = in[i], here = in[i + plane];
  for (int z = 1; z < nz - 1; z++) {
    i += plane;
    float above = in[i + plane];
    float around = in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + below + above;
    out[i] = here + k * (around - 6.0f * here);
    below = here;
    here = above;
  }
}

extern "C" __global__ void wave_2d(const float* now, const float* before, float* next, int width,
                                   int height, float c) {
  __shared__ float tile[18][34];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  for (int r = threadIdx.y; r < 18; r += 16) {
    for (int q = threadIdx.x; q < 34; q += 32) {
      int gx = blockIdx.x * 32 + q - 1, gy = blockIdx.y * 16 + r - 1;
      bool inside = gx >= 0 && gy >= 0 && gx < width && gy < height;
      tile[r][q] = inside ? now[gy * width + gx] : 0.0f;
    }
  }
  __syncthreads();
  if (x >= width || y >= height) return;
  int r = threadIdx.y + 1, q = threadIdx.x + 1;
  float laplace = tile[r][q - 1] + tile[r][q + 1] + tile[r - 1][q] + tile[r + 1][q];
  next[y * width + x] =
      2.0f * tile[r][q] - before[y * width + x] + c * (laplace - 4.0f * tile[r][q]);
}

// 7 x 7 coefficients from constant memory, the image through the L1.
extern "C" __global__ void filter_constant(const float* image, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0.0f;
  for (int r = -3; r <= 3; r++) {
    for (int q = -3; q <= 3; q++) {
      int gx = min(max(x + q, 0), width - 1), gy = min(max(y + r, 0), height - 1);
      sum += coefficients[(r + 3) * 7 + q + 3] * image[gy * width + gx];
    }
  }
  out[y * width + x] = sum;
}

// The same with a tile of the image in shared memory.
extern "C" __global__ void filter_tile(const float* image, float* out, int width, int height) {
  __shared__ float tile[22][22];
  for (int i = threadIdx.y * 16 + threadIdx.x; i < 22 * 22; i += 256) {
    int gx = min(max((int)blockIdx.x * 16 + i % 22 - 3, 0), width - 1);
    int gy = min(max((int)blockIdx.y * 16 + i / 22 - 3, 0), height - 1);
    tile[i / 22][i % 22] = image[gy * width + gx];
  }
  __syncthreads();
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  float sum = 0.0f;
  for (int r = 0; r < 7; r++) {
    for (int q = 0; q < 7; q++) {
      sum += coefficients[r * 7 + q] * tile[threadIdx.y + r][threadIdx.x + q];
    }
  }
  if (x < width && y < height) out[y * width + x] = sum;
}

// A layer of a network: 3 x 3 over all input channels, an output channel per block in z.
extern "C" __global__ void convolve_channels(const float* in, const float* weight, float* out,
                                             int channels, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width - 2 || y >= height - 2) return;
  float sum = 0.0f;
  for (int c = 0; c < channels; c++) {
    const float* image = in + ((size_t)c * height + y) * width + x;
    const float* w = weight + ((size_t)blockIdx.z * channels + c) * 9;
#pragma unroll
    for (int r = 0; r < 3; r++) {
#pragma unroll
      for (int q = 0; q < 3; q++) sum += w[r * 3 + q] * image[r * width + q];
    }
  }
  out[((size_t)blockIdx.z * (height - 2) + y) * (width - 2) + x] = fmaxf(sum, 0.0f);
}
