// Steps of point clouds, detection, rendering and images.

// Points far from those taken: a block per cloud, a search of the farthest per point taken.
extern "C" __global__ void farthest_points(int n, int m, const float* clouds, float* near,
                                           int* taken) {
  __shared__ float distance[512];
  __shared__ int place[512];
  const float* cloud = clouds + (size_t)blockIdx.x * n * 3;
  near += (size_t)blockIdx.x * n;
  taken += blockIdx.x * m;
  int old = 0;
  if (threadIdx.x == 0) taken[0] = 0;
  __syncthreads();
  for (int j = 1; j < m; j++) {
    int best = 0;
    float most = -1.0f;
    float x = cloud[old * 3], y = cloud[old * 3 + 1], z = cloud[old * 3 + 2];
    for (int k = threadIdx.x; k < n; k += 512) {
      float a = cloud[k * 3] - x, b = cloud[k * 3 + 1] - y, c = cloud[k * 3 + 2] - z;
      float d = fminf(a * a + b * b + c * c, near[k]);
      near[k] = d;
      if (d > most) {
        best = k;
        most = d;
      }
    }
    distance[threadIdx.x] = most;
    place[threadIdx.x] = best;
    __syncthreads();
    for (int half = 256; half > 0; half /= 2) {
      if (threadIdx.x < half && distance[threadIdx.x + half] > distance[threadIdx.x]) {
        distance[threadIdx.x] = distance[threadIdx.x + half];
        place[threadIdx.x] = place[threadIdx.x + half];
      }
      __syncthreads();
    }
    old = place[0];
    if (threadIdx.x == 0) taken[j] = old;
    __syncthreads();
  }
}

// The first 32 points within a radius of each centre: a thread per centre reads its cloud.
extern "C" __global__ void ball_query(int n, int m, float radius, const float* centres,
                                      const float* clouds, int* found) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, cloud = blockIdx.y;
  if (i >= m) return;
  const float* c = centres + ((size_t)cloud * m + i) * 3;
  const float* p = clouds + (size_t)cloud * n * 3;
  int* out = found + ((size_t)cloud * m + i) * 32;
  float x = c[0], y = c[1], z = c[2];
  int count = 0;
  for (int k = 0; k < n && count < 32; k++) {
    float a = x - p[k * 3], b = y - p[k * 3 + 1], d = z - p[k * 3 + 2];
    if (a * a + b * b + d * d < radius * radius) {
      if (count == 0)
        for (int l = 0; l < 32; l++) out[l] = k;
      out[count++] = k;
    }
  }
}

// Regions to 7 by 7 by bilinear samples: a thread per element of the result.
extern "C" __global__ void align_regions(int n, const float* features, const float* regions,
                                         float* out, int channels, int side, float scale) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    int px = i % 7, py = i / 7 % 7, c = i / 49 % channels, r = i / 49 / channels;
    const float* box = regions + r * 4;
    float left = box[0] * scale - 0.5f, top = box[1] * scale - 0.5f;
    float wide = (box[2] - box[0]) * scale / 7.0f, high = (box[3] - box[1]) * scale / 7.0f;
    const float* plane = features + (size_t)c * side * side;
    float sum = 0.0f;
    for (int sy = 0; sy < 2; sy++)
      for (int sx = 0; sx < 2; sx++) {
        float y = top + (py + (sy + 0.5f) / 2) * high, x = left + (px + (sx + 0.5f) / 2) * wide;
        y = fminf(fmaxf(y, 0.0f), side - 1.001f);
        x = fminf(fmaxf(x, 0.0f), side - 1.001f);
        int b = (int)y, a = (int)x;
        float fy = y - b, fx = x - a;
        const float* at = plane + b * side + a;
        sum += (1 - fy) * ((1 - fx) * at[0] + fx * at[1]) +
               fy * ((1 - fx) * at[side] + fx * at[side + 1]);
      }
    out[i] = sum / 4;
  }
}

// Which boxes overlap: bits for 64 boxes by a thread, its partners in shared memory.
extern "C" __global__ void overlaps(int n, float limit, const float* boxes,
                                    unsigned long long* mask) {
  int row = blockIdx.y, column = blockIdx.x;
  if (row > column) return;
  int rows = min(n - row * 64, 64), columns = min(n - column * 64, 64);
  __shared__ float partner[64 * 4];
  if (threadIdx.x < columns)
    for (int k = 0; k < 4; k++)
      partner[threadIdx.x * 4 + k] = boxes[(64 * column + threadIdx.x) * 4 + k];
  __syncthreads();
  if (threadIdx.x < rows) {
    int own = 64 * row + threadIdx.x;
    const float* a = boxes + own * 4;
    unsigned long long bits = 0;
    for (int i = row == column ? threadIdx.x + 1 : 0; i < columns; i++) {
      const float* b = partner + i * 4;
      float w = fmaxf(fminf(a[2], b[2]) - fmaxf(a[0], b[0]), 0.0f);
      float h = fmaxf(fminf(a[3], b[3]) - fmaxf(a[1], b[1]), 0.0f);
      float both = w * h, area = (a[2] - a[0]) * (a[3] - a[1]);
      float other = (b[2] - b[0]) * (b[3] - b[1]);
      if (both / (area + other - both) > limit) bits |= 1ULL << i;
    }
    mask[(size_t)own * gridDim.x + column] = bits;
  }
}

// A bilateral filter with a radius of 4, borders clamped.
extern "C" __global__ void smooth_bilateral(const float* in, float* out, int width, int height,
                                            float space, float range) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float own = in[y * width + x], sum = 0.0f, weights = 0.0f;
  for (int dy = -4; dy <= 4; dy++)
    for (int dx = -4; dx <= 4; dx++) {
      int b = min(max(y + dy, 0), height - 1), a = min(max(x + dx, 0), width - 1);
      float v = in[b * width + a], d = v - own;
      float w = __expf(-(dx * dx + dy * dy) * space - d * d * range);
      sum += w * v;
      weights += w;
    }
  out[y * width + x] = sum / weights;
}

// The median of 3 by 3 bytes by a bubble sort.
extern "C" __global__ void median_3x3(const unsigned char* in, unsigned char* out, int width,
                                      int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
  unsigned char window[9];
  for (int k = 0; k < 9; k++) window[k] = in[(y + k / 3 - 1) * width + x + k % 3 - 1];
  for (int i = 0; i < 5; i++)
    for (int j = i + 1; j < 9; j++)
      if (window[j] < window[i]) {
        unsigned char t = window[i];
        window[i] = window[j];
        window[j] = t;
      }
  out[y * width + x] = window[4];
}

// A pass of jump flooding: the nearest seed among those of nine pixels a step apart.
extern "C" __global__ void flood_seeds(const short2* seed, short2* out, int side, int step) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  short2 best = seed[y * side + x];
  int least = (best.x - x) * (best.x - x) + (best.y - y) * (best.y - y);
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++) {
      int a = x + dx * step, b = y + dy * step;
      if (a < 0 || b < 0 || a >= side || b >= side) continue;
      short2 s = seed[b * side + a];
      int d = (s.x - x) * (s.x - x) + (s.y - y) * (s.y - y);
      if (d < least) {
        least = d;
        best = s;
      }
    }
  out[y * side + x] = best;
}

// Features of points from tables of hashed corners: a row of blocks per level.
extern "C" __global__ void encode_points(const float* points, const float2* table, float2* out,
                                         int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, level = blockIdx.y;
  if (i >= n) return;
  float scale = exp2f(level * 0.5f) * 16.0f - 1.0f;
  unsigned cell[3];
  float part[3];
  for (int d = 0; d < 3; d++) {
    float at = points[i * 3 + d] * scale + 0.5f;
    cell[d] = (unsigned)floorf(at);
    part[d] = at - cell[d];
  }
  const float2* own = table + ((size_t)level << 19);
  float a = 0.0f, b = 0.0f;
  for (int corner = 0; corner < 8; corner++) {
    unsigned key = 0;
    float weight = 1.0f;
    const unsigned primes[3] = {1u, 2654435761u, 805459861u};
    for (int d = 0; d < 3; d++) {
      int up = corner >> d & 1;
      weight *= up ? part[d] : 1.0f - part[d];
      key ^= (cell[d] + up) * primes[d];
    }
    float2 v = own[key & 0x7ffff];
    a += weight * v.x;
    b += weight * v.y;
  }
  out[(size_t)level * n + i] = make_float2(a, b);
}

// Colours along rays, front to back, until little light is left: a thread per ray.
extern "C" __global__ void blend_rays(const float* density, const float* colour, float* out,
                                      int rays, int steps, float length) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rays) return;
  float left = 1.0f, r = 0.0f, g = 0.0f, b = 0.0f;
  for (int k = 0; k < steps; k++) {
    size_t at = (size_t)i * steps + k;
    float alpha = 1.0f - __expf(-density[at] * length);
    float weight = alpha * left;
    r += weight * colour[at * 3];
    g += weight * colour[at * 3 + 1];
    b += weight * colour[at * 3 + 2];
    left *= 1.0f - alpha;
    if (left < 1e-4f) break;
  }
  out[i * 3] = r;
  out[i * 3 + 1] = g;
  out[i * 3 + 2] = b;
}

// The Mandelbrot set: how many steps each pixel stays.
extern "C" __global__ void mandelbrot(int* out, int width, int height, float x0, float y0,
                                      float scale, int most) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float cx = x0 + x * scale, cy = y0 + y * scale, a = 0.0f, b = 0.0f;
  int i = 0;
  for (; i < most && a * a + b * b <= 4.0f; i++) {
    float t = a * a - b * b + cx;
    b = 2.0f * a * b + cy;
    a = t;
  }
  out[y * width + x] = i;
}
