// Memory spaces 4: the coefficients in constant memory; all threads of a warp read the same one.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs, each of which begins at a different tap.
//
// What to expect: the constant cache gives one word per clock to a whole warp. If all threads use one
// index, it is as fast as shared memory, and the loads do not compete with the others for the L1.

constexpr int TAPS = 16, OUTPUTS = 16;

__constant__ float coefficients[TAPS];

extern "C" __global__ void filter_constant(const float* in, float* out, int n) {
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
