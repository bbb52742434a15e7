// Arithmetic: more instructions than memory accesses.

// FP32 with the special function unit.
extern "C" __global__ void black_scholes(const float* price, const float* strike, float* call,
                                         float* put, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = price[i], x = strike[i], t = 1.5f, r = 0.02f, v = 0.3f;
  float d1 = (__logf(s / x) + (r + 0.5f * v * v) * t) / (v * sqrtf(t));
  float d2 = d1 - v * sqrtf(t);
  float n1 = normcdff(d1), n2 = normcdff(d2), discounted = x * __expf(-r * t);
  call[i] = s * n1 - discounted * n2;
  put[i] = discounted * (1.0f - n2) - s * (1.0f - n1);
}

extern "C" __global__ void special_functions(const float* in, float* out, int rounds, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i], sum = 0.0f;
  for (int r = 0; r < rounds; r++) {
    sum += __sinf(v) * __expf(-v) + rsqrtf(v + 1.0f);
    v = v * 0.75f + 0.1f;
  }
  out[i] = sum;
}

// A polynomial of degree 32 by Horner's rule: chains of FMAs.
extern "C" __global__ void polynomial(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i], y = 1.0f;
#pragma unroll
  for (int d = 1; d <= 32; d++) y = y * x + 1.0f / d;
  out[i] = y;
}

extern "C" __global__ void integrate_double(const double* in, double* out, int steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = in[i], v = 0.0, h = 0.01;
  for (int s = 0; s < steps; s++) {  // a pendulum, sin by its series
    double x2 = x * x;
    double sine = x * (1.0 - x2 / 6.0 * (1.0 - x2 / 20.0 * (1.0 - x2 / 42.0)));
    v -= h * sine;
    x += h * v;
  }
  out[i] = x;
}

// MurmurHash3's 32-bit mixing, several rounds: integer multiplications, shifts and xors.
extern "C" __global__ void hash_words(const unsigned* in, unsigned* out, int rounds, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = in[i];
  for (int r = 0; r < rounds; r++) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    h += r;
  }
  out[i] = h;
}

// Pi by darts, with a linear congruential generator per thread.
extern "C" __global__ void darts(unsigned long long* hits, int throws) {
  unsigned state = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u, inside = 0;
  for (int i = 0; i < throws; i++) {
    state = state * 1664525u + 1013904223u;
    float x = (state >> 8) * 5.9604645e-8f;
    state = state * 1664525u + 1013904223u;
    float y = (state >> 8) * 5.9604645e-8f;
    inside += x * x + y * y < 1.0f;
  }
  for (int offset = 16; offset; offset /= 2) inside += __shfl_down_sync(~0u, inside, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(hits, (unsigned long long)inside);
}

// Iterations until escape: neighbouring pixels differ, so warps diverge.
extern "C" __global__ void mandelbrot(int* out, int width, int height, int limit) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= width || py >= height) return;
  float cx = -2.0f + 3.0f * px / width, cy = -1.5f + 3.0f * py / height, x = 0.0f, y = 0.0f;
  int steps = 0;
  while (steps < limit && x * x + y * y < 4.0f) {
    float t = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = t;
    steps++;
  }
  out[py * width + px] = steps;
}

// Collatz lengths: loops whose count data decides, almost at random.
extern "C" __global__ void collatz(int* out, int first, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long v = first + i;
  int steps = 0;
  while (v != 1) {
    v = v % 2 ? 3 * v + 1 : v / 2;
    steps++;
  }
  out[i] = steps;
}

// Lanes of a warp take one of four branches.
extern "C" __global__ void branches(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i];
  switch (i % 4) {
    case 0:
      for (int k = 0; k < 16; k++) v = v * 1.01f + 0.5f;
      break;
    case 1:
      for (int k = 0; k < 8; k++) v = sqrtf(v + 1.0f);
      break;
    case 2:
      for (int k = 0; k < 8; k++) v = v / (1.0f + v);
      break;
    default:
      v = __sinf(v);
  }
  out[i] = v;
}

// All pairs of bodies, tiles of them in shared memory.
extern "C" __global__ void gravity(const float4* body, float4* acceleration, int n) {
  __shared__ float4 tile[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  float4 own = body[i];
  float ax = 0.0f, ay = 0.0f, az = 0.0f;
  for (int first = 0; first < n; first += 256) {
    tile[threadIdx.x] = body[first + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < 256; j++) {
      float4 other = tile[j];
      float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
      float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
      float pull = other.w * inverse * inverse * inverse;
      ax += pull * dx;
      ay += pull * dy;
      az += pull * dz;
    }
    __syncthreads();
  }
  acceleration[i] = make_float4(ax, ay, az, 0.0f);
}

// Levenshtein-like dynamic programme of one block: a barrier per antidiagonal.
extern "C" __global__ void edit_distance(const unsigned char* a, const unsigned char* b, int* out,
                                         int length) {
  extern __shared__ int row[];
  int t = threadIdx.x, *before = row, *last = row + length + 1, *now = row + 2 * (length + 1);
  const unsigned char* mine = a + blockIdx.x * length;
  const unsigned char* other = b + blockIdx.x * length;
  for (int d = 0; d <= 2 * length; d++) {
    for (int i = t; i <= length; i += blockDim.x) {
      int j = d - i;
      if (j < 0 || j > length) continue;
      int value = i == 0 || j == 0 ? max(i, j) : 0;
      if (i && j) {
        int same = before[i - 1] + (mine[i - 1] != other[j - 1]);
        value = min(same, min(last[i - 1], last[i]) + 1);
      }
      now[i] = value;
    }
    __syncthreads();
    int* oldest = before;
    before = last;
    last = now;
    now = oldest;
  }
  if (t == 0) out[blockIdx.x] = last[length];
}

// One lookup a thread in a table in shared memory, with random bank conflicts.
extern "C" __global__ void table_shared(const int* in, int* out, int rounds) {
  __shared__ int table[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) table[i] = in[i];
  __syncthreads();
  int at = (blockIdx.x * blockDim.x + threadIdx.x) * 7919 & 1023;
  for (int r = 0; r < rounds; r++) at = table[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

// A grid of many tiny blocks.
extern "C" __global__ void tiny_blocks(float* out, float value) {
  if (threadIdx.x == 0) out[blockIdx.x] = value * blockIdx.x;
}
