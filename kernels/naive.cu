// Step 0: one thread computes one element of P and reads all its operands from global memory.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes.
//
// What to expect: 2 FLOPs for every 8 bytes requested, 0.25 FLOP/B whatever the sizes. The caches
// serve most of those bytes, so the kernel runs above the DRAM ceiling at that intensity, and the L1
// limits it instead. Neighboring threads read the same element of M (a broadcast) and neighboring
// elements of N (coalesced).

extern "C" __global__ void naive(const float* M, const float* N, float* P, int m, int k, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int column = blockIdx.x * blockDim.x + threadIdx.x;

  if (row < m && column < n) {
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
      sum += M[row * k + i] * N[i * n + column];
    }
    P[row * n + column] = sum;
  }
}
