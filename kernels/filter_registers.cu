// Memory spaces 1: the coefficients of a small filter in registers.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs.
//
// What to expect: each thread loads the sixteen coefficients once. All indices are known at compile
// time, so the array needs no memory: an operand in a register costs no instruction. The five
// kernels that follow differ only in the memory space of the coefficients.

constexpr int TAPS = 16, OUTPUTS = 16;

extern "C" __global__ void filter_registers(const float* in, const float* coefficients, float* out,
                                            int n) {
  float own[TAPS];
  for (int tap = 0; tap < TAPS; ++tap) {
    own[tap] = coefficients[tap];
  }

  int first = blockIdx.x * blockDim.x * OUTPUTS + threadIdx.x;
#pragma unroll 1
  for (int output = 0; output < OUTPUTS; ++output) {
    int i = first + output * blockDim.x;
    if (i < n) {
      float sum = 0.0f;
      for (int tap = 0; tap < TAPS; ++tap) {
        sum += own[tap] * in[i + tap];
      }
      out[i] = sum;
    }
  }
}
