// Steps of inference servers and of training, in the ways that their kernels are written.

#include <cuda_fp16.h>

// A gate: each block takes a token, its row holds both halves.
extern "C" __global__ void silu_and_multiply(__half* out, const __half* in, int size) {
  const __half* x = in + (size_t)blockIdx.x * 2 * size;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    float a = __half2float(x[i]), b = __half2float(x[size + i]);
    out[(size_t)blockIdx.x * size + i] = __float2half(a / (1.0f + expf(-a)) * b);
  }
}

// Rotary positions in place: a block per token, cosines and sines from a cache.
extern "C" __global__ void rotate_cached(const long long* position, __half* query,
                                         const __half* cache, int heads, int size) {
  int half = size / 2;
  const __half* row = cache + position[blockIdx.x] * size;
  for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
    int head = i / half, at = i % half;
    __half* x = query + ((size_t)blockIdx.x * heads + head) * size;
    __half c = row[at], s = row[half + at], a = x[at], b = x[half + at];
    x[at] = a * c - b * s;
    x[half + at] = b * c + a * s;
  }
}

// Attention of one token over a cache in pages of 16 tokens: a block per head and sequence.
extern "C" __global__ void attend_pages(float* out, const float* query, const float* keys,
                                        const float* values, const int* tables, int tokens,
                                        int pages, float scale) {
  __shared__ float logits[1024];
  __shared__ float of_warp[4];
  int heads = gridDim.x, head = blockIdx.x, sequence = blockIdx.y;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float4* q = (const float4*)(query + ((size_t)sequence * heads + head) * 128);
  float4 own = q[lane];
  float most = -1e30f;
  for (int token = warp; token < tokens; token += 4) {
    int page = tables[sequence * pages + token / 16];
    const float4* k =
        (const float4*)(keys + (((size_t)page * heads + head) * 16 + token % 16) * 128);
    float4 v = k[lane];
    float dot = own.x * v.x + own.y * v.y + own.z * v.z + own.w * v.w;
    for (int mask = 16; mask > 0; mask /= 2) dot += __shfl_xor_sync(~0u, dot, mask);
    dot *= scale;
    if (lane == 0) logits[token] = dot;
    most = fmaxf(most, dot);
  }
  if (lane == 0) of_warp[warp] = most;
  __syncthreads();
  most = fmaxf(fmaxf(of_warp[0], of_warp[1]), fmaxf(of_warp[2], of_warp[3]));
  float sum = 0.0f;
  for (int i = threadIdx.x; i < tokens; i += 128) {
    logits[i] = __expf(logits[i] - most);
    sum += logits[i];
  }
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
  __syncthreads();
  if (lane == 0) of_warp[warp] = sum;
  __syncthreads();
  sum = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
  float total = 0.0f;
  for (int token = 0; token < tokens; token++) {
    int page = tables[sequence * pages + token / 16];
    total += logits[token] *
             values[(((size_t)page * heads + head) * 16 + token % 16) * 128 + threadIdx.x];
  }
  out[((size_t)sequence * heads + head) * 128 + threadIdx.x] = total / sum;
}

// The best eight of 64 experts: a warp per token, two logits a lane.
extern "C" __global__ void route_tokens(const float* logits, float* weight, int* expert,
                                        int tokens) {
  int lane = threadIdx.x % 32, token = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (token >= tokens) return;
  float value[2] = {logits[token * 64 + lane], logits[token * 64 + 32 + lane]};
  float most = fmaxf(value[0], value[1]);
  for (int mask = 16; mask > 0; mask /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
  float sum = 0.0f;
  for (int i = 0; i < 2; i++) sum += value[i] = expf(value[i] - most);
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
  for (int i = 0; i < 2; i++) value[i] /= sum;
  for (int k = 0; k < 8; k++) {
    int best = value[0] >= value[1] ? lane : lane + 32;
    float top = fmaxf(value[0], value[1]);
    for (int mask = 16; mask > 0; mask /= 2) {
      float other = __shfl_xor_sync(~0u, top, mask);
      int of_other = __shfl_xor_sync(~0u, best, mask);
      if (other > top || (other == top && of_other < best)) {
        top = other;
        best = of_other;
      }
    }
    if (lane == 0) {
      weight[token * 8 + k] = top;
      expert[token * 8 + k] = best;
    }
    if (best % 32 == lane) value[best / 32] = -1.0f;
  }
}

// A vector by a matrix of 4-bit weights, eight rows a word: parts of columns meet in atomics.
extern "C" __global__ void product_four_bits(const float* vector, const unsigned* weight,
                                             float* out, const float* scale, const float* zero,
                                             int height, int width) {
  __shared__ float part[256];
  int row = 32 * blockIdx.x, column = 256 * blockIdx.y + threadIdx.x;
  part[threadIdx.x] = vector[8 * row + threadIdx.x];
  __syncthreads();
  float s = scale[column], z = zero[column], sum = 0.0f;
  const unsigned* at = weight + (size_t)row * width + column;
  for (int k = 0; k < 256; k += 8, at += width) {
    unsigned eight = *at;
    for (int i = 0; i < 8; i++) sum += (s * (eight >> 4 * i & 15) - z) * part[k + i];
  }
  atomicAdd(out + column, sum);
}

// A recurrence with decay over the times of a sequence: a thread per channel.
extern "C" __global__ void decay_scan(int times, int channels, const float* decay,
                                      const float* bonus, const float* key, const float* value,
                                      float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, b = i / channels, c = i % channels;
  size_t base = (size_t)b * times * channels + c;
  float u = bonus[c], w = -expf(decay[c]), p = 0.0f, q = 0.0f, o = -1e38f;
  for (int t = 0; t < times; t++) {
    float k = key[base + t * channels], v = value[base + t * channels];
    float no = fmaxf(o, u + k), A = expf(o - no), B = expf(u + k - no);
    out[base + t * channels] = (A * p + B * v) / (A * q + B);
    no = fmaxf(w + o, k);
    A = expf(w + o - no);
    B = expf(k - no);
    p = A * p + B * v;
    q = A * q + B;
    o = no;
  }
}

// A selective scan: a thread per channel, 16 states, inputs of a chunk of times through shared.
extern "C" __global__ void select_scan(const float* u, const float* delta, const float* a,
                                       const float* b, const float* c, float* out, int channels,
                                       int times) {
  __shared__ float both[2][64][16];
  int channel = blockIdx.x * blockDim.x + threadIdx.x, batch = blockIdx.y;
  float state[16], rate[16];
  for (int n = 0; n < 16; n++) {
    state[n] = 0.0f;
    rate[n] = a[channel * 16 + n];
  }
  for (int start = 0; start < times; start += 64) {
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
      both[0][i / 16][i % 16] = b[((size_t)batch * times + start) * 16 + i];
      both[1][i / 16][i % 16] = c[((size_t)batch * times + start) * 16 + i];
    }
    __syncthreads();
    for (int t = 0; t < 64; t++) {
      size_t at = ((size_t)batch * times + start + t) * channels + channel;
      float d = delta[at], x = u[at] * d, y = 0.0f;
      for (int n = 0; n < 16; n++) {
        state[n] = __expf(d * rate[n]) * state[n] + x * both[0][t][n];
        y += state[n] * both[1][t][n];
      }
      out[at] = y;
    }
  }
}

// A step of AdamW: a thread per parameter.
extern "C" __global__ void adam_step(float* parameter, const float* gradient, float* m, float* v,
                                     long long n, float rate, float beta1, float beta2,
                                     float correction1, float correction2, float eps,
                                     float decay) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float g = gradient[i];
  float a = m[i] = beta1 * m[i] + (1.0f - beta1) * g;
  float b = v[i] = beta2 * v[i] + (1.0f - beta2) * g * g;
  a /= correction1;
  b /= correction2;
  parameter[i] -= rate * (a / (sqrtf(b) + eps) + decay * parameter[i]);
}

// A group norm: a block per image and group of channels; variance by the mean of squares.
extern "C" __global__ void group_norm(const float* in, const float* weight, const float* bias,
                                      float* out, int channels, int groups, int pixels) {
  __shared__ float sums[32], squares[32];
  int per = channels / groups, group = blockIdx.x % groups;
  const float* x = in + (size_t)blockIdx.x * per * pixels;
  float sum = 0.0f, square = 0.0f;
  for (int i = threadIdx.x; i < per * pixels; i += blockDim.x) {
    sum += x[i];
    square += x[i] * x[i];
  }
  for (int d = 16; d > 0; d /= 2) {
    sum += __shfl_down_sync(~0u, sum, d);
    square += __shfl_down_sync(~0u, square, d);
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
    squares[threadIdx.x / 32] = square;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    bool has = threadIdx.x < blockDim.x / 32;
    sum = has ? sums[threadIdx.x] : 0.0f;
    square = has ? squares[threadIdx.x] : 0.0f;
    for (int d = 16; d > 0; d /= 2) {
      sum += __shfl_down_sync(~0u, sum, d);
      square += __shfl_down_sync(~0u, square, d);
    }
    if (threadIdx.x == 0) {
      sums[0] = sum / (per * pixels);
      squares[0] = square / (per * pixels);
    }
  }
  __syncthreads();
  float mean = sums[0], scale = rsqrtf(squares[0] - mean * mean + 1e-5f);
  float* y = out + (size_t)blockIdx.x * per * pixels;
  for (int i = threadIdx.x; i < per * pixels; i += blockDim.x) {
    int c = group * per + i / pixels;
    y[i] = (x[i] - mean) * scale * weight[c] + bias[c];
  }
}

// A depthwise convolution, 3 by 3: a grid-stride loop over outputs.
extern "C" __global__ void convolve_depthwise(const float* in, const float* weight, float* out,
                                              int n, int channels, int side) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    int x = i % side, y = i / side % side, plane = i / side / side, c = plane % channels;
    float sum = 0.0f;
    for (int dy = 0; dy < 3; dy++)
      for (int dx = 0; dx < 3; dx++) {
        int b = y + dy - 1, a = x + dx - 1;
        if (b >= 0 && b < side && a >= 0 && a < side)
          sum += in[(plane * side + b) * side + a] * weight[c * 9 + 3 * dy + dx];
      }
    out[i] = sum;
  }
}

// Patches to columns, 3 by 3: a thread per channel and pixel writes nine rows.
extern "C" __global__ void image_to_columns(int n, const float* image, int side, float* columns) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    int x = i % side, y = i / side % side, c = i / side / side;
    float* out = columns + ((size_t)c * 9 * side + y) * side + x;
    for (int dy = 0; dy < 3; dy++)
      for (int dx = 0; dx < 3; dx++) {
        int b = y + dy - 1, a = x + dx - 1;
        *out = b >= 0 && a >= 0 && b < side && a < side ? image[(c * side + b) * side + a] : 0.0f;
        out += side * side;
      }
  }
}

// The largest of windows of 3 by 3, two apart, and where it is.
extern "C" __global__ void pool_most(int n, const float* in, int side, int wide, float* out,
                                     long long* where) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    int x = i % wide, y = i / wide % wide, plane = i / wide / wide;
    int top = max(2 * y - 1, 0), left = max(2 * x - 1, 0);
    int bottom = min(2 * y + 2, side), right = min(2 * x + 2, side);
    const float* from = in + (size_t)plane * side * side;
    float most = -INFINITY;
    int best = top * side + left;
    for (int b = top; b < bottom; b++)
      for (int a = left; a < right; a++)
        if (from[b * side + a] > most) {
          best = b * side + a;
          most = from[best];
        }
    out[i] = most;
    where[i] = best;
  }
}

// The most likely word: a block per row.
extern "C" __global__ void likeliest(const float* logits, int* word, int words) {
  __shared__ float value[1024];
  __shared__ int place[1024];
  const float* x = logits + (size_t)blockIdx.x * words;
  float most = -INFINITY;
  int best = 0;
  for (int i = threadIdx.x; i < words; i += 1024)
    if (x[i] > most) {
      most = x[i];
      best = i;
    }
  value[threadIdx.x] = most;
  place[threadIdx.x] = best;
  __syncthreads();
  for (int half = 512; half > 0; half >>= 1) {
    if (threadIdx.x < half && value[threadIdx.x + half] > value[threadIdx.x]) {
      value[threadIdx.x] = value[threadIdx.x + half];
      place[threadIdx.x] = place[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) word[blockIdx.x] = place[0];
}

// Rows to eight bits by their largest element: a block per token.
extern "C" __global__ void quantize_tokens(const float* in, signed char* out, float* scales,
                                           int size) {
  __shared__ float of_warp[32];
  const float* x = in + (size_t)blockIdx.x * size;
  float most = 0.0f;
  for (int i = threadIdx.x; i < size; i += blockDim.x) most = fmaxf(most, fabsf(x[i]));
  for (int mask = 16; mask > 0; mask /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
  most = of_warp[threadIdx.x % 32 % (blockDim.x / 32)];
  for (int mask = 16; mask > 0; mask /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
  if (threadIdx.x == 0) scales[blockIdx.x] = most / 127.0f;
  float scale = 127.0f / most;
  for (int i = threadIdx.x; i < size; i += blockDim.x)
    out[(size_t)blockIdx.x * size + i] = (signed char)__float2int_rn(x[i] * scale);
}

// Sums of 32 rows of a table a bag: a thread per element of the result.
extern "C" __global__ void sum_bags(const long long* index, const float* table, float* out,
                                    int bags, int size) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, bag = blockIdx.y * blockDim.y + threadIdx.y;
  if (c >= size || bag >= bags) return;
  float sum = 0.0f;
  for (int i = 0; i < 32; i++) sum += table[index[bag * 32 + i] * size + c];
  out[(size_t)bag * size + c] = sum;
}
