// Attention in three kernels, the second: scores become weights.
//
// Each row of S (heads x tokens x tokens) becomes a row of P, whose numbers are positive and add up to
// one: P[i] = exp(S[i] - max) / sum of all exp(S[j] - max). The maximum keeps exp from overflowing. A
// block computes one row. With CAUSAL a row has only the keys up to its own token, and zeros behind.
//
// What to expect: four FLOPs for each score that is read and each weight that is written, 8 bytes at
// least: 0.5 FLOP/B, whatever HEAD_SIZE is. The kernel is bound by DRAM, and computes next to nothing.
// Each row is read three times (for the maximum, the sum and the weights), the second and third time
// from the L1, as the rows of all blocks on a multiprocessor fit in it.

#define THREADS 256
#define WARPS (THREADS / 32)

// The largest value, or the sum of the values, of all threads of the block.
__device__ float combined(float value, bool sum, float* of_warps) {
  for (int distance = 16; distance > 0; distance /= 2) {
    float other = __shfl_xor_sync(0xffffffff, value, distance);
    value = sum ? value + other : fmaxf(value, other);
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (int warp = 1; warp < WARPS; ++warp) {
    value = sum ? value + of_warps[warp] : fmaxf(value, of_warps[warp]);
  }
  return value;
}

extern "C" __global__ void attention_softmax(const float* S, float* P, int tokens) {
  __shared__ float maxima[WARPS], sums[WARPS];

  int row = blockIdx.x, keys = CAUSAL ? row + 1 : tokens;
  int start = (blockIdx.y * tokens + row) * tokens;

  float largest = -INFINITY;
  for (int key = threadIdx.x; key < keys; key += THREADS) {
    largest = fmaxf(largest, S[start + key]);
  }
  largest = combined(largest, false, maxima);

  float sum = 0.0f;
  for (int key = threadIdx.x; key < keys; key += THREADS) {
    sum += expf(S[start + key] - largest);
  }
  sum = combined(sum, true, sums);

  float factor = 1.0f / sum;
  for (int key = threadIdx.x; key < tokens; key += THREADS) {
    P[start + key] = key < keys ? expf(S[start + key] - largest) * factor : 0.0f;
  }
}
