// Steps of language models, in the ways that small implementations of them are written.

#include <cuda_fp16.h>

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

__device__ float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

// Embeddings of tokens and of their positions: a thread per element, its indices by divisions.
extern "C" __global__ void token_position(float* out, const int* token, const float* words,
                                          const float* positions, int batches, int times,
                                          int channels) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batches * times * channels) return;
  int bt = i / channels, b = bt / times, t = bt % times, c = i % channels;
  out[i] = words[(size_t)token[b * times + t] * channels + c] + positions[t * channels + c];
}

// A layer norm with a warp per row: three passes, the last with hints to evict.
extern "C" __global__ void norm_rows(float* out, float* means, float* scales, const float* in,
                                     const float* weight, const float* bias, int rows,
                                     int channels) {
  int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const float* x = in + (size_t)row * channels;
  float sum = 0.0f;
  for (int c = lane; c < channels; c += 32) sum += x[c];
  float mean = warp_sum(sum) / channels;
  sum = 0.0f;
  for (int c = lane; c < channels; c += 32) sum += (x[c] - mean) * (x[c] - mean);
  float scale = rsqrtf(warp_sum(sum) / channels + 1e-5f);
  if (lane == 0) {
    __stcs(means + row, mean);
    __stcs(scales + row, scale);
  }
  for (int c = lane; c < channels; c += 32)
    __stcs(out + (size_t)row * channels + c, scale * (__ldcs(x + c) - mean) * weight[c] + bias[c]);
}

// The gradients of a layer norm's weights: rows by warps, sums in shared memory by atomics.
extern "C" __global__ void norm_gradients(float* weight_gradient, float* bias_gradient,
                                          const float* gradient, const float* in,
                                          const float* means, const float* scales, int rows,
                                          int channels) {
  extern __shared__ float shared[];
  float *bias = shared, *weight = shared + channels;
  for (int c = threadIdx.x; c < 2 * channels; c += blockDim.x) shared[c] = 0.0f;
  __syncthreads();
  int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row < rows) {
    float mean = means[row], scale = scales[row];
    for (int c = lane; c < channels; c += 32) {
      float above = gradient[(size_t)row * channels + c];
      atomicAdd(bias + c, above);
      atomicAdd(weight + c, (in[(size_t)row * channels + c] - mean) * scale * above);
    }
  }
  __syncthreads();
  for (int c = threadIdx.x; c < channels; c += blockDim.x) {
    atomicAdd(bias_gradient + c, bias[c]);
    atomicAdd(weight_gradient + c, weight[c]);
  }
}

// Softmax of what each time may see, with a warp per row, from the last row to the first.
extern "C" __global__ void softmax_causal(float* out, float scale, const float* in, int heads,
                                          int times) {
  int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  int row = (gridDim.x - blockIdx.x - 1) * warps + threadIdx.x / 32;
  if (row >= heads * times) return;
  int own = row % times, fours = own / 4;
  const float* x = in + (size_t)row * times;
  float most = -1e30f, sum = 0.0f;
  for (int i = lane; i < fours; i += 32) {
    float4 v = ((const float4*)x)[i];
    float before = most;
    most = fmaxf(fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)), most);
    sum *= expf(scale * (before - most));
    sum += expf(scale * (v.x - most)) + expf(scale * (v.y - most));
    sum += expf(scale * (v.z - most)) + expf(scale * (v.w - most));
  }
  if (4 * fours + lane <= own) {
    float before = most;
    most = fmaxf(most, x[4 * fours + lane]);
    sum *= expf(scale * (before - most));
    sum += expf(scale * (x[4 * fours + lane] - most));
  }
  float top = warp_max(most);
  float norm = 1.0f / warp_sum(sum * expf(scale * (most - top)));
  for (int i = lane; i <= own; i += 32)
    __stcs(out + (size_t)row * times + i, expf(scale * (__ldcs(x + i) - top)) * norm);
}

// The gradient of the logits of a cross entropy: a thread per logit.
extern "C" __global__ void loss_gradient(float* out, const float* loss_gradients,
                                         const float* probability, const int* target, int rows,
                                         int words) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)rows * words) return;
  int row = (int)(i / words), word = (int)(i % words);
  out[i] = (probability[i] - (word == target[row] ? 1.0f : 0.0f)) * loss_gradients[row];
}

// Sums of columns, the gradient of a bias: 32 columns a block of 1024 threads.
extern "C" __global__ void bias_gradient(float* out, const float* gradient, int rows, int columns) {
  __shared__ float part[1024];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float sum = 0.0f;
  for (int row = warp; row < rows; row += blockDim.x / 32)
    sum += gradient[(size_t)row * columns + column];
  part[threadIdx.x] = sum;
  __syncthreads();
  sum = 0.0f;
  if (warp == 0) {
    for (int w = 0; w < blockDim.x / 32; w++) sum += part[lane + 32 * w];
    out[column] += sum;
  }
}

// Rows divided by their root mean square: 1024 threads a row.
extern "C" __global__ void rms_rows(const float* in, float* out, int columns, float eps) {
  __shared__ float of_warp[32];
  const float* x = in + (size_t)blockIdx.x * columns;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[c] * x[c];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = warp_sum(of_warp[threadIdx.x % 32]);
  float scale = rsqrtf(sum / columns + eps);
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    out[(size_t)blockIdx.x * columns + c] = scale * x[c];
}

// Rotary positions: angles by powf, sinf and cosf for each pair, halves of a head apart.
extern "C" __global__ void rotary_angles(const float* in, float* out, const int* position, int size,
                                         int heads, float base) {
  int i = 2 * (blockDim.y * blockIdx.y + threadIdx.y);
  if (i >= size) return;
  int row = blockIdx.x * blockDim.x + threadIdx.x, at = row * size + i / 2;
  float theta = position[row / heads] * powf(base, -(float)i / size);
  float cosine = cosf(theta), sine = sinf(theta), a = in[at], b = in[at + size / 2];
  out[at] = a * cosine - b * sine;
  out[at + size / 2] = a * sine + b * cosine;
}

struct Packed4 {
  half scale;
  unsigned char values[16];
};

struct Packed8 {
  half2 scale;
  signed char values[32];
};

__device__ int read_2_bytes_each(const unsigned char* bytes, int word) {
  const unsigned short* halves = (const unsigned short*)(bytes + 4 * word);
  return halves[0] | halves[1] << 16;
}

// A row of packed 4-bit weights times packed 8-bit activations: a block of 4 warps per row.
extern "C" __global__ void product_packed(const Packed4* weight, const Packed8* x, float* out,
                                          int blocks) {
  __shared__ float of_warp[3][32];
  int tid = 32 * threadIdx.y + threadIdx.x, row = blockIdx.x;
  float sum = 0.0f;
  for (int b = tid / 2; b < blocks; b += 64) {
    const Packed4* w = weight + (size_t)row * blocks + b;
    const Packed8* a = x + b;
    int total = 0, first = 2 * (tid % 2);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      int four = read_2_bytes_each(w->values, first + k);
      int low = ((const int*)a->values)[first + k], high = ((const int*)a->values)[first + k + 4];
      total = __dp4a(four & 0x0f0f0f0f, low, total);
      total = __dp4a(four >> 4 & 0x0f0f0f0f, high, total);
    }
    float2 scale = __half22float2(a->scale);
    sum += __half2float(w->scale) * (total * scale.x - 4.0f * scale.y);
  }
  if (threadIdx.y > 0) of_warp[threadIdx.y - 1][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0) return;
  for (int w = 0; w < 3; w++) sum += of_warp[w][threadIdx.x];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) out[row] = sum;
}

struct Packed {
  half scale;
  signed char values[32];
};

// Packed 8-bit weights to halves: a thread per two values, structures of 34 bytes.
extern "C" __global__ void unpack(const Packed* in, half* out, long long n) {
  long long i = 2 * ((long long)blockDim.x * blockIdx.x + threadIdx.x);
  if (i >= n) return;
  const Packed* block = in + i / 32;
  float scale = __half2float(block->scale);
  out[i] = __float2half(block->values[i % 32] * scale);
  out[i + 1] = __float2half(block->values[i % 32 + 1] * scale);
}

// The gradient of GELU by tanh, a thread per element.
extern "C" __global__ void gelu_gradient(float* out, const float* in, const float* above, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i], cube = 0.044715f * x * x * x;
  float argument = 0.7978845608f * (x + cube), t = tanhf(argument), c = coshf(argument);
  float slope = 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x) / (c * c);
  out[i] = (0.5f * (1.0f + t) + x * 0.5f * slope) * above[i];
}

// One token attends to a cache: 4 heads share keys, a part of the cache a block, 4 warps.
extern "C" __global__ void decode_part(const float* query, const half* key, const half* value,
                                       float* out, float2* state, int tokens) {
  __shared__ float acc[4][128];
  __shared__ float2 of_warp[4];
  int head = blockIdx.x, part = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  size_t base = (size_t)(head / 4) * tokens * 128;
  float4 q = ((const float4*)query)[head * 32 + lane];
  float most = -1e30f, sum = 0.0f;
  float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  int each = tokens / gridDim.y, end = (part + 1) * each;
  for (int t = part * each + warp; t < end; t += 4) {
    uint2 packed = *(const uint2*)(key + base + (size_t)t * 128 + 4 * lane);
    float2 a = __half22float2(*(half2*)&packed.x), b = __half22float2(*(half2*)&packed.y);
    float score = warp_sum(q.x * a.x + q.y * a.y + q.z * b.x + q.w * b.y) * 0.08838835f;
    float above = fmaxf(most, score), old = __expf(most - above), now = __expf(score - above);
    packed = *(const uint2*)(value + base + (size_t)t * 128 + 4 * lane);
    a = __half22float2(*(half2*)&packed.x), b = __half22float2(*(half2*)&packed.y);
    o.x = o.x * old + now * a.x, o.y = o.y * old + now * a.y;
    o.z = o.z * old + now * b.x, o.w = o.w * old + now * b.y;
    sum = sum * old + now;
    most = above;
  }
  ((float4*)acc[warp])[lane] = o;
  if (lane == 0) of_warp[warp] = make_float2(most, sum);
  __syncthreads();
  float top = -1e30f, total = 0.0f, result = 0.0f;
  for (int w = 0; w < 4; w++) top = fmaxf(top, of_warp[w].x);
  for (int w = 0; w < 4; w++) {
    float factor = __expf(of_warp[w].x - top);
    total += factor * of_warp[w].y;
    result += factor * acc[w][threadIdx.x];
  }
  out[((size_t)head * gridDim.y + part) * 128 + threadIdx.x] = result / total;
  if (threadIdx.x == 0) state[head * gridDim.y + part] = make_float2(top, total);
}

// Attention in tiles of 32 rows by a warp: a thread per query, all in shared memory.
extern "C" __global__ void attend_tiles(const float* query, const float* key, const float* value,
                                        float* out, int times) {
  extern __shared__ float shared[];
  float *q = shared, *k = q + 32 * 64, *v = k + 32 * 64, *s = v + 32 * 64;
  size_t base = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * times * 64;
  int tid = threadIdx.x;
  for (int i = 0; i < times; i += 32) {
    float most = -1e30f, sum = 0.0f;
    float* row = out + base + (size_t)(i + tid) * 64;
    for (int c = 0; c < 64; c++) q[tid * 64 + c] = query[base + (i + tid) * 64 + c];
    for (int j = 0; j < times; j += 32) {
      __syncthreads();
      for (int c = 0; c < 64; c++) {
        k[tid * 64 + c] = key[base + (j + tid) * 64 + c];
        v[tid * 64 + c] = value[base + (j + tid) * 64 + c];
      }
      __syncthreads();
      float above = most, part = 0.0f;
      for (int y = 0; y < 32; y++) {
        float dot = 0.0f;
        for (int c = 0; c < 64; c++) dot += q[tid * 64 + c] * k[y * 64 + c];
        s[tid * 32 + y] = dot * 0.125f;
        above = fmaxf(above, dot * 0.125f);
      }
      for (int y = 0; y < 32; y++) {
        s[tid * 32 + y] = __expf(s[tid * 32 + y] - above);
        part += s[tid * 32 + y];
      }
      float old = __expf(most - above), total = old * sum + part;
      for (int c = 0; c < 64; c++) {
        float dot = 0.0f;
        for (int y = 0; y < 32; y++) dot += s[tid * 32 + y] * v[y * 64 + c];
        row[c] = ((j ? old * sum * row[c] : 0.0f) + dot) / total;
      }
      most = above, sum = total;
    }
    __syncthreads();
  }
}
