// Register pressure: 64 values that a thread needs twice, with a limit of registers.
//
// out[i] = variance of in[0][i], ..., in[63][i], float32: first their mean, then the mean of the
// squared differences from it, so every value is still needed after its first use.
//
// What to expect: without a limit the compiler uses about 72 registers, which leaves room for fewer
// warps. --registers (NVRTC's --maxrregcount) allows more warps again, until the values no longer
// fit and are spilled: "local memory" in the report is then above zero. Spilling happens after PTX,
// which the emulator executes, so spills appear in the resources and not among the counters of local
// memory; Nsight Compute on a GPU counts them.

constexpr int VALUES = 64;

extern "C" __global__ void register_pressure(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float values[VALUES];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < VALUES; ++k) {
      values[k] = in[k * n + i];
      sum += values[k];
    }

    float mean = sum / VALUES, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < VALUES; ++k) {
      squares += (values[k] - mean) * (values[k] - mean);
    }
    out[i] = squares / VALUES;
  }
}
