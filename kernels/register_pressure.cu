// Register pressure: 64 values that a thread needs twice, and as many registers as you allow.
//
// out[i] = variance of in[0][i], ..., in[63][i], float32: first their mean, then the mean of the
// squared distances from it, so that no value can be forgotten after its first use.
//
// What to expect: left alone the compiler takes some 72 registers, which leaves room for fewer
// warps. --registers (NVRTC's --maxrregcount) brings the warps back, until the values no longer
// fit and are spilled: "local memory" in the report is then above zero. Spilling happens after PTX,
// which is what the emulator executes, so spills show in the resources and not among the counters
// of local memory; Nsight Compute on a GPU counts them.

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
