// Attention in three kernels, the second: scores become weights.
//
// Each row of S (heads x tokens x tokens) becomes a row of P, whose numbers are positive and add up to
// one: P[i] = exp(S[i] - max) / sum of all exp(S[j] - max). The maximum keeps exp from overflowing. A
// warp computes one row. With CAUSAL a row has only the keys up to its own token, and zeros behind.
//
// What to expect: four FLOPs for each score that is read and each weight that is written, 8 bytes at
// least: 0.5 FLOP/B, whatever HEAD_SIZE is. The kernel is bound by memory, and computes next to
// nothing. Each row is read three times (for the maximum, the sum and the weights); a row that is still
// in a cache costs no more DRAM traffic.

#define ROWS 8  // rows, and so warps, of a block

extern "C" __global__ void attention_softmax(const float* S, float* P, int tokens) {
  int lane = threadIdx.x, row = blockIdx.x * ROWS + threadIdx.y;
  if (row >= tokens) return;
  int keys = CAUSAL ? row + 1 : tokens;
  int start = (blockIdx.y * tokens + row) * tokens;

  float largest = -INFINITY;
  for (int key = lane; key < keys; key += 32) {
    largest = fmaxf(largest, S[start + key]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
  }

  float sum = 0.0f;
  for (int key = lane; key < keys; key += 32) {
    sum += expf(S[start + key] - largest);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }

  float factor = 1.0f / sum;
  for (int key = lane; key < tokens; key += 32) {
    P[start + key] = key < keys ? expf(S[start + key] - largest) * factor : 0.0f;
  }
}
