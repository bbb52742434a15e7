// Memory spaces 3: the coefficients in shared memory, one copy per block.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs, each of which begins at a different tap.
//
// What to expect: all threads of a warp read the same word, which shared memory broadcasts in one
// wavefront. Each use is a load, with a latency of tens of clocks instead of none.

constexpr int TAPS = 16, OUTPUTS = 16;

extern "C" __global__ void filter_shared(const float* in, const float* coefficients, float* out,
                                         int n) {
  __shared__ float common[TAPS];
  if (threadIdx.x < TAPS) {
    common[threadIdx.x] = coefficients[threadIdx.x];
  }
  __syncthreads();

  int first = blockIdx.x * blockDim.x * OUTPUTS + threadIdx.x;
#pragma unroll 1
  for (int output = 0; output < OUTPUTS; ++output) {
    int i = first + output * blockDim.x;
    if (i < n) {
      float sum = 0.0f;
      for (int step = 0; step < TAPS; ++step) {
        int tap = (step + output) % TAPS;
        sum += common[tap] * in[i + tap];
      }
      out[i] = sum;
    }
  }
}
