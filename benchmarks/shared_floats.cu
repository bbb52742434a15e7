// Additions to floats in shared memory, for benchmarks/microbenchmarks.py, which counts their
// compare-and-swaps.
//
// Each thread of a block adds `additions` times to the word of its lane, which `sharing_lanes`
// lanes of all warps share.
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
  out[threadIdx.x] = words[threadIdx.x % 32];
  if (threadIdx.x == 0)
    *clocks = end - begin;
}

int main() {
  float* out = device_memory<float>(1024);
  u64* clocks;
  CHECK(cudaMallocManaged(&clocks, sizeof *clocks));
  std::printf("kernel,sharing_lanes,warps,additions,clocks_per_addition\n");
  for (u32 sharing_lanes : {1, 2, 4, 8, 32})
    for (int warps : {1, 2, 4, 8, 16, 32}) {
      floats<<<1, warps * 32>>>(sharing_lanes, ADDITIONS, out, clocks);
      finish();
      std::printf("floats,%u,%d,%u,%.1f\n", sharing_lanes, warps, ADDITIONS,
                  double(*clocks) / ADDITIONS);
    }
  return 0;
}
