// Filters, stereo, rendering and convolutions of images.

#include <cuda_fp16.h>

// The largest of 5 by 5 bytes: a tile with its border in shared memory.
extern "C" __global__ void dilate_5x5(const unsigned char* src, unsigned char* dst, int width,
                                      int height) {
  const int R = 2, TX = 32, TY = 8;
  __shared__ unsigned char tile[TY + 2 * R][TX + 2 * R];
  for (int y = threadIdx.y; y < TY + 2 * R; y += TY)
    for (int x = threadIdx.x; x < TX + 2 * R; x += TX) {
      int gx = min(max((int)(blockIdx.x * TX) + x - R, 0), width - 1);
      int gy = min(max((int)(blockIdx.y * TY) + y - R, 0), height - 1);
      tile[y][x] = src[gy * width + gx];
    }
  __syncthreads();
  int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y;
  if (x >= width || y >= height) return;
  unsigned char m = 0;
#pragma unroll
  for (int j = 0; j <= 2 * R; j++)
#pragma unroll
    for (int i = 0; i <= 2 * R; i++) m = max(m, tile[threadIdx.y + j][threadIdx.x + i]);
  dst[y * width + x] = m;
}

// A running mean along columns, a thread per column.
extern "C" __global__ void box_columns(const float* in, float* out, int w, int h, int r) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= w) return;
  const float* id = in + x;
  float* od = out + x;
  float scale = 1.0f / (2 * r + 1);
  float t = id[0] * r;
  for (int y = 0; y < r + 1; y++) t += id[y * w];
  od[0] = t * scale;
  for (int y = 1; y < r + 1; y++) {
    t += id[(y + r) * w];
    t -= id[0];
    od[y * w] = t * scale;
  }
  for (int y = r + 1; y < h - r; y++) {
    t += id[(y + r) * w];
    t -= id[(y - r - 1) * w];
    od[y * w] = t * scale;
  }
  for (int y = h - r; y < h; y++) {
    t += id[(h - 1) * w];
    t -= id[(y - r - 1) * w];
    od[y * w] = t * scale;
  }
}

// NV12 frames of a camera to packed red, green and blue, in whole numbers.
extern "C" __global__ void nv12_to_rgb(const unsigned char* luma, const uchar2* chroma,
                                       unsigned char* rgb, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  int c = 298 * (luma[y * width + x] - 16);
  uchar2 uv = chroma[(y / 2) * (width / 2) + x / 2];
  int d = uv.x - 128, e = uv.y - 128;
  unsigned char* p = rgb + 3 * ((size_t)y * width + x);
  p[0] = min(max((c + 409 * e + 128) >> 8, 0), 255);
  p[1] = min(max((c - 100 * d - 208 * e + 128) >> 8, 0), 255);
  p[2] = min(max((c + 516 * d + 128) >> 8, 0), 255);
}

// Sums along rows for an integral image: a block per row, four bytes a thread.
extern "C" __global__ void integral_rows(const uchar4* in, uint4* out, int width4) {
  __shared__ unsigned warp_sum[8];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  unsigned carry = 0;
  for (int base = 0; base < width4; base += 256) {
    const int i = base + threadIdx.x;
    uchar4 v = i < width4 ? in[(size_t)blockIdx.x * width4 + i] : make_uchar4(0, 0, 0, 0);
    uint4 s;
    s.x = v.x;
    s.y = s.x + v.y;
    s.z = s.y + v.z;
    s.w = s.z + v.w;
    unsigned sum = s.w;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      unsigned n = __shfl_up_sync(0xffffffff, sum, d);
      if (lane >= d) sum += n;
    }
    if (lane == 31) warp_sum[warp] = sum;
    __syncthreads();
    unsigned before = carry;
    for (int k = 0; k < 8; k++) {
      if (k < warp) before += warp_sum[k];
      carry += warp_sum[k];
    }
    before += sum - s.w;
    s.x += before;
    s.y += before;
    s.z += before;
    s.w += before;
    if (i < width4) out[(size_t)blockIdx.x * width4 + i] = s;
    __syncthreads();
  }
}

// The distortion of a lens undone: each pixel is read between four others.
extern "C" __global__ void undistort(const float4* __restrict__ src, float4* __restrict__ dst,
                                     int w, int h, float focal, float k1, float k2) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float u = (x - 0.5f * w) / focal, v = (y - 0.5f * h) / focal;
  float r2 = u * u + v * v;
  float f = 1.0f + r2 * (k1 + k2 * r2);
  float sx = fminf(fmaxf(u * f * focal + 0.5f * w, 0.0f), w - 1.001f);
  float sy = fminf(fmaxf(v * f * focal + 0.5f * h, 0.0f), h - 1.001f);
  int ix = (int)sx, iy = (int)sy;
  float ax = sx - ix, ay = sy - iy;
  float4 p = __ldg(&src[iy * w + ix]), q = __ldg(&src[iy * w + ix + 1]);
  float4 r = __ldg(&src[(iy + 1) * w + ix]), s = __ldg(&src[(iy + 1) * w + ix + 1]);
  float a = (1 - ax) * (1 - ay), b = ax * (1 - ay), c = (1 - ax) * ay, d = ax * ay;
  dst[y * w + x] = make_float4(a * p.x + b * q.x + c * r.x + d * s.x,
                               a * p.y + b * q.y + c * r.y + d * s.y,
                               a * p.z + b * q.z + c * r.z + d * s.z,
                               a * p.w + b * q.w + c * r.w + d * s.w);
}

// Rays through a volume from front to back, read between eight voxels, until little light is left.
extern "C" __global__ void march_volume(const float* volume, float* image, int size, int width,
                                        float step, float density) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= width || py >= width) return;
  float x = (size - 1.01f) * (px + 0.5f) / width, y = (size - 1.01f) * (py + 0.5f) / width;
  float sum = 0.0f, left = 1.0f;
  for (float z = 0.0f; z < size - 1.01f; z += step) {
    int ix = (int)x, iy = (int)y, iz = (int)z;
    float fx = x - ix, fy = y - iy, fz = z - iz;
    const float* v = volume + ((size_t)iz * size + iy) * size + ix;
    float c00 = v[0] + fx * (v[1] - v[0]);
    float c10 = v[size] + fx * (v[size + 1] - v[size]);
    v += size * size;
    float c01 = v[0] + fx * (v[1] - v[0]);
    float c11 = v[size] + fx * (v[size + 1] - v[size]);
    float c0 = c00 + fy * (c10 - c00), c1 = c01 + fy * (c11 - c01);
    float value = c0 + fz * (c1 - c0);
    float alpha = 1.0f - expf(-density * value * step);
    sum += left * alpha * value;
    left *= 1.0f - alpha;
    if (left < 0.01f) break;
    // A slanted camera.
    x += 0.1f * step;
    y += 0.05f * step;
    if (x > size - 1.01f || y > size - 1.01f) break;
  }
  image[py * width + px] = sum;
}

// Gaussians drawn over tiles of 16 by 16 pixels, in their order, a batch in shared memory.
extern "C" __global__ void __launch_bounds__(256)
    render_splats(const int2* __restrict__ ranges, const int* __restrict__ point_list, int W,
                  const float2* __restrict__ xy, const float4* __restrict__ conic_opacity,
                  const float* __restrict__ features, float* __restrict__ out_color) {
  __shared__ int collected_id[256];
  __shared__ float2 collected_xy[256];
  __shared__ float4 collected_conic[256];
  const int px = blockIdx.x * 16 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y;
  const int rank = threadIdx.y * 16 + threadIdx.x, H = gridDim.y * 16;
  const int2 range = ranges[blockIdx.y * gridDim.x + blockIdx.x];
  int todo = range.y - range.x;
  bool done = false;
  float T = 1.0f, C[3] = {0};
  for (int base = range.x; base < range.y; base += 256, todo -= 256) {
    if (__syncthreads_count(done) == 256) break;
    if (base + rank < range.y) {
      int id = point_list[base + rank];
      collected_id[rank] = id;
      collected_xy[rank] = xy[id];
      collected_conic[rank] = conic_opacity[id];
    }
    __syncthreads();
    for (int j = 0; !done && j < min(256, todo); j++) {
      float2 at = collected_xy[j];
      float4 con = collected_conic[j];
      // Places are relative to the tile.
      float dx = at.x - threadIdx.x, dy = at.y - threadIdx.y;
      float power = -0.5f * (con.x * dx * dx + con.z * dy * dy) - con.y * dx * dy;
      if (power > 0.0f) continue;
      float alpha = fminf(0.99f, con.w * expf(power));
      if (alpha < 1.0f / 255.0f) continue;
      float next = T * (1 - alpha);
      if (next < 0.0001f) {
        done = true;
        continue;
      }
      for (int ch = 0; ch < 3; ch++) C[ch] += features[collected_id[j] * 3 + ch] * alpha * T;
      T = next;
    }
  }
  for (int ch = 0; ch < 3; ch++) out_color[((size_t)ch * H + py) * W + px] = C[ch] + T * 0.5f;
}

// Components of equal pixels within a tile: labels spread until none changes.
extern "C" __global__ void label_tiles(const unsigned char* image, int* labels, int width) {
  __shared__ int label[16][32];
  __shared__ unsigned char pixel[16][32];
  int tx = threadIdx.x, ty = threadIdx.y;
  int at = (blockIdx.y * 16 + ty) * width + blockIdx.x * 32 + tx;
  pixel[ty][tx] = image[at];
  label[ty][tx] = ty * 32 + tx;
  __syncthreads();
  int changed = 1;
  while (changed) {
    int old = label[ty][tx], best = old;
    unsigned char p = pixel[ty][tx];
    if (tx > 0 && pixel[ty][tx - 1] == p) best = min(best, label[ty][tx - 1]);
    if (tx < 31 && pixel[ty][tx + 1] == p) best = min(best, label[ty][tx + 1]);
    if (ty > 0 && pixel[ty - 1][tx] == p) best = min(best, label[ty - 1][tx]);
    if (ty < 15 && pixel[ty + 1][tx] == p) best = min(best, label[ty + 1][tx]);
    __syncthreads();
    label[ty][tx] = best;
    changed = __syncthreads_or(best != old);
  }
  labels[at] = label[ty][tx];
}

// Half the size behind a filter of five by five, columns first, as pyramids are made.
extern "C" __global__ void pyramid_down(const float* src, float* dst, int rows, int cols) {
  __shared__ float smem[256 + 4];
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, sy = 2 * y;
  auto row = [&](int r) { return src + (size_t)min(max(r, 0), rows - 1) * cols; };
  auto column = [&](int c) {
    c = min(max(c, 0), cols - 1);
    return 0.0625f * row(sy - 2)[c] + 0.25f * row(sy - 1)[c] + 0.375f * row(sy)[c] +
           0.25f * row(sy + 1)[c] + 0.0625f * row(sy + 2)[c];
  };
  smem[2 + threadIdx.x] = column(x);
  if (threadIdx.x < 2) smem[threadIdx.x] = column(x - 2);
  if (threadIdx.x > 253) smem[4 + threadIdx.x] = column(x + 2);
  __syncthreads();
  if (threadIdx.x < 128) {
    const int t = threadIdx.x * 2, to = blockIdx.x * 128 + threadIdx.x;
    if (to < cols / 2)
      dst[(size_t)y * (cols / 2) + to] = 0.0625f * smem[t] + 0.25f * smem[t + 1] +
                                         0.375f * smem[t + 2] + 0.25f * smem[t + 3] +
                                         0.0625f * smem[t + 4];
  }
}

// Stereo by census words: of 64 shifts that with the fewest differing bits.
extern "C" __global__ void match_census(const unsigned long long* left,
                                        const unsigned long long* right, unsigned char* disparity,
                                        int width) {
  __shared__ unsigned long long window[128 + 63];
  const int x0 = blockIdx.x * 128, x = x0 + threadIdx.x;
  const size_t row = (size_t)blockIdx.y * width;
  for (int i = threadIdx.x; i < 128 + 63; i += 128)
    window[i] = x0 - 63 + i >= 0 ? right[row + x0 - 63 + i] : ~0ull;
  __syncthreads();
  const unsigned long long own = left[row + x];
  int best = 65, where = 0;
#pragma unroll 8
  for (int d = 0; d < 64; d++) {
    int cost = __popcll(own ^ window[threadIdx.x + 63 - d]);
    if (cost < best) {
      best = cost;
      where = d;
    }
  }
  disparity[row + x] = where;
}

// 4 by 4 tiles of the input of a convolution of Winograd, F(2 x 2, 3 x 3): B^T d B.
extern "C" __global__ void winograd_input(const float* __restrict__ in, float* __restrict__ out,
                                          int channels, int size, int tiles) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  const int plane = blockIdx.y;
  if (t >= tiles * tiles) return;
  const int y0 = t / tiles * 2 - 1, x0 = t % tiles * 2 - 1;
  const float* p = in + (size_t)plane * size * size;
  float d[4][4], b[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int y = y0 + i, x = x0 + j;
      d[i][j] = y >= 0 && y < size && x >= 0 && x < size ? p[y * size + x] : 0.0f;
    }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    b[0][j] = d[0][j] - d[2][j];
    b[1][j] = d[1][j] + d[2][j];
    b[2][j] = d[2][j] - d[1][j];
    b[3][j] = d[1][j] - d[3][j];
  }
  const size_t stride = (size_t)channels * tiles * tiles, at = (size_t)plane * tiles * tiles + t;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    out[(4 * i + 0) * stride + at] = b[i][0] - b[i][2];
    out[(4 * i + 1) * stride + at] = b[i][1] + b[i][2];
    out[(4 * i + 2) * stride + at] = b[i][2] - b[i][1];
    out[(4 * i + 3) * stride + at] = b[i][1] - b[i][3];
  }
}

// Channels become the last dimension: tiles of halves through shared memory.
extern "C" __global__ void channels_last(const half* in, half* out, int channels, int pixels) {
  __shared__ half tile[32][33];
  const size_t image = (size_t)blockIdx.z * channels * pixels;
  int p = blockIdx.x * 32 + threadIdx.x, c0 = blockIdx.y * 32;
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8)
    if (p < pixels) tile[i][threadIdx.x] = in[image + (size_t)(c0 + i) * pixels + p];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8) {
    p = blockIdx.x * 32 + i;
    if (p < pixels) out[image + (size_t)p * channels + c0 + threadIdx.x] = tile[threadIdx.x][i];
  }
}
