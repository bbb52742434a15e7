// Launches with known or constant durations, for the tests of timing.

extern "C" __global__ void copy(const float4* from, float4* to, long long count) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

// Arithmetic only: eight chains per thread turn x into 1 - x and back, `trips` times.
extern "C" __global__ void fma_chains(const float* from, float* to, int trips, float factor,
                                      float addend) {
  constexpr int CHAINS = 8;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float first = from[i], x[CHAINS], sum = 0.0f;

#pragma unroll
  for (int c = 0; c < CHAINS; ++c) x[c] = first + c;
#pragma unroll 1
  for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = fmaf(x[c], factor, addend);
  }
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) sum += x[c];
  to[i] = sum;
}

// Every thread waits for a number of clocks, whose duration is known.
extern "C" __global__ void wait(float* to, long long clocks) {
  long long start = clock64();

  while (clock64() - start < clocks) {
  }
  if (threadIdx.x == 0) to[blockIdx.x] = blockIdx.x;
}
