// Memory spaces 5: the coefficients in constant memory; the threads of a warp read different ones.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs; each thread begins at a different tap.
//
// What to expect: the constant cache serves one address at a time. The threads of a warp need sixteen
// words, so a load takes sixteen passes where `filter-constant` needs one: constant memory is fast
// only if a warp uses one address. The sums are the same, in a different order.

constexpr int TAPS = 16, OUTPUTS = 16;

__constant__ float coefficients[TAPS];

extern "C" __global__ void filter_constant_divergent(const float* in, float* out, int n) {
  int first = blockIdx.x * blockDim.x * OUTPUTS + threadIdx.x;
#pragma unroll 1
  for (int output = 0; output < OUTPUTS; ++output) {
    int i = first + output * blockDim.x;
    if (i < n) {
      float sum = 0.0f;
      for (int step = 0; step < TAPS; ++step) {
        int tap = (step + output + threadIdx.x) % TAPS;
        sum += coefficients[tap] * in[i + tap];
      }
      out[i] = sum;
    }
  }
}
