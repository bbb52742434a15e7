// Additions to floats in shared memory, for benchmarks/microbenchmarks.py, which counts their
// compare-and-swaps.
//
// Each thread of a block adds `additions` times to the word of its lane, which `sharing_lanes`
// lanes of all its warps share. There are `blocks_per_sm` blocks for each SM.
#include "device.cuh"

constexpr u32 ADDITIONS = 32;

__global__ void floats(u32 sharing_lanes, u32 additions, float* out, u64* clocks) {
  __shared__ float words[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x)
    words[i] = 0;
  __syncthreads();
  u64 begin = clock_of_sm();
  for (u32 i = 0; i < additions; ++i)
    atomicAdd(words + threadIdx.x % 32 / sharing_lanes, 1.0f + i);
  __syncthreads();
  u64 end = clock_of_sm();
  out[blockIdx.x * blockDim.x + threadIdx.x] = words[threadIdx.x % 32];
  if (threadIdx.x == 0 && blockIdx.x == 0)
    *clocks = end - begin;
}

int main() {
  int sms = multiprocessors();
  float* out = device_memory<float>(sms * 64 * 32);
  u64* clocks;
  CHECK(cudaMallocManaged(&clocks, sizeof *clocks));
  std::printf("kernel,sharing_lanes,warps,blocks_per_sm,additions,clocks_per_addition\n");
  for (u32 sharing_lanes : {1, 2, 4, 8, 32})
    for (int warps : {1, 2, 4, 8, 16, 32})
      for (int blocks = 1; blocks <= 16 && blocks * warps <= 64; blocks *= 2) {
        floats<<<sms * blocks, warps * 32>>>(sharing_lanes, ADDITIONS, out, clocks);
        finish();
        std::printf("floats,%u,%d,%d,%u,%.1f\n", sharing_lanes, warps, blocks, ADDITIONS,
                    double(*clocks) / ADDITIONS);
      }
  return 0;
}
