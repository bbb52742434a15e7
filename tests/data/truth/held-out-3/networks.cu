// Steps of neural networks.

#include <cuda_fp16.h>

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

// The gradient of a layer norm with respect to its input: a block per row of 1024.
extern "C" __global__ void norm_backward(const float* x, const float* gradient, const float* scale,
                                         float* out) {
  __shared__ float4 parts[8];
  const float* row = x + (size_t)blockIdx.x * 1024;
  const float* above = gradient + (size_t)blockIdx.x * 1024;
  float value[4], wanted[4], sum = 0.0f, squares = 0.0f, dot = 0.0f, dotted = 0.0f;
  for (int k = 0; k < 4; k++) {
    int c = threadIdx.x + 256 * k;
    value[k] = row[c];
    wanted[k] = above[c] * scale[c];
    sum += value[k];
    squares += value[k] * value[k];
    dot += wanted[k];
    dotted += wanted[k] * value[k];
  }
  sum = warp_sum(sum), squares = warp_sum(squares), dot = warp_sum(dot), dotted = warp_sum(dotted);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float4(sum, squares, dot, dotted);
  __syncthreads();
  sum = squares = dot = dotted = 0.0f;
  for (int w = 0; w < 8; w++) {
    float4 part = parts[w];
    sum += part.x, squares += part.y, dot += part.z, dotted += part.w;
  }
  float mean = sum / 1024, inverse = rsqrtf(squares / 1024 - mean * mean + 1e-5f);
  float along = (dotted - mean * dot) * inverse / 1024;
  for (int k = 0; k < 4; k++) {
    float normal = (value[k] - mean) * inverse;
    out[(size_t)blockIdx.x * 1024 + threadIdx.x + 256 * k] =
        inverse * (wanted[k] - dot / 1024 - normal * along);
  }
}

// Rows of an embedding, scaled: a warp per token, 128 channels.
extern "C" __global__ void embed(const int* token, const float* table, float* out, float scale) {
  int t = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float4 row = ((const float4*)table)[(size_t)token[t] * 32 + lane];
  row.x *= scale, row.y *= scale, row.z *= scale, row.w *= scale;
  ((float4*)out)[(size_t)t * 32 + lane] = row;
}

// The gates of an LSTM's cell: a thread per unit, the four gates one after another in a row.
extern "C" __global__ void lstm_cell(const float* gates, const float* before, float* cell,
                                     float* hidden, int units) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* row = gates + (size_t)(i / units) * 4 * units + i % units;
  float in = 1.0f / (1.0f + __expf(-row[0])), forget = 1.0f / (1.0f + __expf(-row[units]));
  float out = 1.0f / (1.0f + __expf(-row[3 * units]));
  float state = forget * before[i] + in * tanhf(row[2 * units]);
  cell[i] = state;
  hidden[i] = out * tanhf(state);
}

// One token attends to 1024 others: a block per head, 64 channels, a warp per key in turn.
extern "C" __global__ void attend_one(const float* query, const half2* key, const half2* value,
                                      float* out) {
  __shared__ float score[1024], parts[8], sums[8][64];
  int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float2 q = ((const float2*)query)[head * 32 + lane];
  float most = -1e30f;
  for (int t = warp; t < 1024; t += 8) {
    float2 k = __half22float2(key[((size_t)head * 1024 + t) * 32 + lane]);
    float dot = warp_sum(q.x * k.x + q.y * k.y) * 0.125f;
    if (lane == 0) score[t] = dot;
    most = fmaxf(most, dot);
  }
  if (lane == 0) parts[warp] = most;
  __syncthreads();
  for (int w = 0; w < 8; w++) most = fmaxf(most, parts[w]);
  float2 sum = make_float2(0.0f, 0.0f);
  float total = 0.0f;
  for (int t = warp; t < 1024; t += 8) {
    float weight = __expf(score[t] - most);
    float2 v = __half22float2(value[((size_t)head * 1024 + t) * 32 + lane]);
    sum.x += weight * v.x, sum.y += weight * v.y, total += weight;
  }
  __syncthreads();
  sums[warp][2 * lane] = sum.x, sums[warp][2 * lane + 1] = sum.y;
  if (lane == 0) parts[warp] = total;
  __syncthreads();
  if (threadIdx.x < 64) {
    float all = 0.0f, weights = 0.0f;
    for (int w = 0; w < 8; w++) all += sums[w][threadIdx.x], weights += parts[w];
    out[head * 64 + threadIdx.x] = all / weights;
  }
}

// The four largest of each row of 2048: each lane keeps its four, then lanes merge theirs.
extern "C" __global__ void top_four(const float* in, float* out) {
  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float a = -1e30f, b = -1e30f, c = -1e30f, d = -1e30f;
  for (int k = 0; k < 64; k++) {
    float v = in[(size_t)row * 2048 + 32 * k + lane];
    if (v > d) {
      d = v;
      if (d > c) { float t = c; c = d; d = t; }
      if (c > b) { float t = b; b = c; c = t; }
      if (b > a) { float t = a; a = b; b = t; }
    }
  }
  for (int k = 0; k < 4; k++) {
    float most = a;
    for (int offset = 16; offset > 0; offset /= 2)
      most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    int owner = __ffs(__ballot_sync(~0u, a == most)) - 1;
    if (lane == owner) a = b, b = c, c = d, d = -1e30f;
    if (lane == 0) out[row * 4 + k] = most;
  }
}
