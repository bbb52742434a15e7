// Memory spaces 6: the coefficients in global memory.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs, each of which begins at a different tap.
//
// What to expect: every use is a request to L1, as many as for the data: one sector each, of which
// 4 bytes are used. The compiler must assume that `out` overlaps the coefficients, so it reads them
// again after every store.

constexpr int TAPS = 16, OUTPUTS = 16;

extern "C" __global__ void filter_global(const float* in, const float* coefficients, float* out,
                                         int n) {
  int first = blockIdx.x * blockDim.x * OUTPUTS + threadIdx.x;
#pragma unroll 1
  for (int output = 0; output < OUTPUTS; ++output) {
    int i = first + output * blockDim.x;
    if (i < n) {
      float sum = 0.0f;
      for (int step = 0; step < TAPS; ++step) {
        int tap = (step + output) % TAPS;
        sum += coefficients[tap] * in[i + tap];
      }
      out[i] = sum;
    }
  }
}
