// Memory spaces 6: the coefficients left in global memory.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs, and begins each at another tap.
//
// What to expect: every use is a request to L1, as many as for the data itself: a sector each,
// 4 bytes of it used. `out` might overlap the coefficients as far as the compiler knows, so it must
// read them anew after every store.

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
