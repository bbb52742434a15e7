// Memory spaces 2: the coefficients in an array of the thread, which is in local memory.
//
// out[i] = c[0] * in[i] + ... + c[15] * in[i + 15], float32; in has n + 15 elements. A thread computes
// 16 outputs, each of which begins at a different tap: an index known only at run time.
//
// What to expect: registers cannot be indexed at run time, so the array is in local memory: global
// memory reserved for the thread, interleaved so that a warp that reads one index touches whole
// lines. Each use is a load, mostly from L1.
//
// Lessons say that automatic arrays are in local memory. This is not true of an array whose indices
// are all known at compile time (`filter-registers`), nor of a very small one: for eight coefficients
// ptxas generates a chain of selections between registers.

constexpr int TAPS = 16, OUTPUTS = 16;

extern "C" __global__ void filter_local(const float* in, const float* coefficients, float* out,
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
      for (int step = 0; step < TAPS; ++step) {
        int tap = (step + output) % TAPS;
        sum += own[tap] * in[i + tap];
      }
      out[i] = sum;
    }
  }
}
