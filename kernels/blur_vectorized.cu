// Image blur, step 2: each thread averages 4 x 4 pixels, from rows of 16 bytes in its registers.
//
// out[row][column] = mean of in over the (2 RADIUS + 1)^2 pixels around it that are inside the
// image; float32, any sizes, RADIUS up to 4. If the width is no multiple of 4, rows begin anywhere in a
// line, and pixels are moved one by one.
//
// What to expect: a thread loads its 4 + 2 RADIUS rows of 4 pixels before it uses the first, adds each row
// once for all the means that contain it, and takes the pixels beside its own from its neighbors in the
// warp by shuffles; only the first and the last lane load them. There is no barrier and no shared memory:
// rows that several warps read come from the caches, and the kernel runs at the speed of a copy.

constexpr int ROWS = 4;  // of pixels per thread
constexpr unsigned ALL = 0xffffffff;

__device__ __forceinline__ float4 load_quad(
    const float* in, int row, int column, int width, int height) {
  float4 quad = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (row < 0 || row >= height || column < 0 || column >= width) {
    return quad;
  }
  const float* from = in + (size_t)row * width + column;
  if (width % 4 == 0) {
    return *reinterpret_cast<const float4*>(from);
  }
  quad.x = from[0];
  if (column + 1 < width) quad.y = from[1];
  if (column + 2 < width) quad.z = from[2];
  if (column + 3 < width) quad.w = from[3];
  return quad;
}

__device__ __forceinline__ int pixels_around(int position, int extent) {
  return min(position + RADIUS, extent - 1) - max(position - RADIUS, 0) + 1;
}

extern "C" __global__ void blur_vectorized(const float* in, float* out, int width, int height) {
  int lane = threadIdx.x, column = 4 * (blockIdx.x * 32 + lane);
  int row = ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
  int beside = lane == 0 ? column - 4 : lane == 31 ? column + 4 : -1;  // what no neighbor has

  float4 own[ROWS + 2 * RADIUS], edge[ROWS + 2 * RADIUS];
#pragma unroll
  for (int i = 0; i < ROWS + 2 * RADIUS; ++i) {
    own[i] = load_quad(in, row + i - RADIUS, column, width, height);
    edge[i] = load_quad(in, row + i - RADIUS, beside, width, height);
  }

  float sums[ROWS][4] = {};
#pragma unroll
  for (int i = 0; i < ROWS + 2 * RADIUS; ++i) {
    float line[12] = {0, 0, 0, 0, own[i].x, own[i].y, own[i].z, own[i].w, 0, 0, 0, 0};
    float outer[4] = {edge[i].x, edge[i].y, edge[i].z, edge[i].w};
#pragma unroll
    for (int k = 0; k < RADIUS; ++k) {
      float left = __shfl_up_sync(ALL, line[7 - k], 1);
      float right = __shfl_down_sync(ALL, line[4 + k], 1);
      line[3 - k] = lane == 0 ? outer[3 - k] : left;
      line[8 + k] = lane == 31 ? outer[k] : right;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float sum = 0.0f;
#pragma unroll
      for (int j = -RADIUS; j < RADIUS + 1; ++j) sum += line[4 + k + j];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (r <= i && i <= r + 2 * RADIUS) sums[r][k] += sum;
      }
    }
  }

#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (row + r < height && column < width) {
      int rows = pixels_around(row + r, height);
      float mean[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        mean[k] = sums[r][k] / (rows * pixels_around(column + k, width));
      }
      float* to = out + (size_t)(row + r) * width + column;
      if (width % 4 == 0) {
        *reinterpret_cast<float4*>(to) = make_float4(mean[0], mean[1], mean[2], mean[3]);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (column + k < width) to[k] = mean[k];
        }
      }
    }
  }
}
