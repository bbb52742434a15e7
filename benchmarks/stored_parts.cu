// What stores to parts of a sector leave in the L1, for benchmarks/microbenchmarks.py, which counts
// the sectors that are read.
//
// A block on each SM stores words of 16 lines, of local memory (`local_parts`) or its own of global
// memory: one lane of `every`, and with `all` the other lanes behind it. Then of `loaders` lanes one
// loads, that of number `first`. It does so `rounds` times.
#include "device.cuh"

constexpr int WORDS = 16, LANES = 32;

__device__ __forceinline__ u32 parts(u32* place, int stride, int every, int loaders, int first,
                                     int all, int rounds) {
  int lane = threadIdx.x % LANES;
  u32 sum = 0;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll 1
    for (int i = 0; i < WORDS; ++i)
      if (lane % every == 0)
        place[(i + all) % WORDS * stride] = i + round;
#pragma unroll 1
    for (int i = 0; all && i < WORDS; ++i)
      if (lane % every != 0)
        place[(i + all) % WORDS * stride] = i ^ round;
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < WORDS; ++i)
      if (lane % loaders == first)
        sum ^= place[(i * 3 + all) % WORDS * stride];
  }
  return sum;
}

__global__ void local_parts(u32* memory, int every, int loaders, int first, int all, int rounds) {
  u32 own[WORDS];
  u32 sum = parts(own, 1, every, loaders, first, all, rounds);
  if (sum == 0x12345678u)
    *memory = sum;
}

__global__ void global_parts(u32* memory, int every, int loaders, int first, int all, int rounds) {
  u64 warp = u64(blockIdx.x * blockDim.x + threadIdx.x) / LANES;
  u32* own = memory + warp * LANES * WORDS + threadIdx.x % LANES;
  u32 sum = parts(own, LANES, every, loaders, first, all, rounds);
  if (sum == 0x12345678u)
    *memory = sum;
}

int main() {
  auto* memory = static_cast<u32*>(random_memory(64ull << 20));
  int sms = multiprocessors();
  struct {
    int every, loaders, first, all;
  } cases[] = {{1, 1, 0, 0}, {2, 1, 0, 0}, {2, 2, 0, 0}, {2, 2, 1, 0},  {2, 1, 0, 1}, {8, 8, 0, 0},
               {8, 1, 0, 0}, {8, 8, 1, 0}, {32, 1, 0, 0}, {32, 32, 0, 0}, {8, 1, 0, 1}};
  std::printf("kernel,every,loaders,first,all,rounds\n");
  for (bool local : {true, false})
    for (auto of : cases)
      for (int rounds : {1, 4}) {
        auto* kernel = local ? local_parts : global_parts;
        kernel<<<sms, 256>>>(memory, of.every, of.loaders, of.first, of.all, rounds);
        finish();
        std::printf("%s_parts,%d,%d,%d,%d,%d\n", local ? "local" : "global", of.every, of.loaders,
                    of.first, of.all, rounds);
      }
  return 0;
}
