// Stores of all warps to one word, alone or between stores to lines of their own, for
// benchmarks/microbenchmarks.py.

#include <utility>

#include "device.cuh"
#include "median_time.cuh"

constexpr u32 OWN_WORDS = 1 << 22, MOST_THREADS = 1 << 24;
constexpr int REPEATS = 11;

// So many rounds of stores to lines of the warp, one or two, and to the word of all warps.
__global__ void stores(const u32* asked, u32* own, u32* common, u32 own_stores, u32 common_stores,
                       u32 rounds) {
  u32 warps = gridDim.x * blockDim.x / 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (!asked[blockIdx.x * blockDim.x + threadIdx.x]) return;
#pragma unroll 1
  for (u32 round = 0; round < rounds; ++round) {
    u32 place = (warp + round * warps) * 32 + threadIdx.x % 32;
    if (own_stores > 0) own[place % OWN_WORDS] = round;
    if (own_stores > 1) own[(place + OWN_WORDS / 2) % OWN_WORDS] = round;
    if (common_stores > 0) *common = round;
    asm volatile("" ::: "memory");
  }
}

int main() {
  auto* asked = static_cast<u32*>(random_memory(u64(MOST_THREADS) * sizeof(u32)));
  u32* own = device_memory<u32>(OWN_WORDS);
  u32* common = device_memory<u32>(1);
  u32 sms = multiprocessors();
  const std::pair<u32, u32> shapes[] = {{16, 512},       {sms / 2, 512}, {sms, 512},
                                        {sms * 2, 512},  {sms * 4, 512}, {sms * 8, 512},
                                        {sms * 16, 512}, {sms * 64, 512}, {sms * 8, 128},
                                        {sms, 1024},     {sms * 64, 128}, {sms * 64, 32}};
  std::printf("blocks,threads,rounds,own_stores,common_stores,us\n");
  for (std::pair<u32, u32> shape : shapes)
    for (u32 rounds : {1u, 2u, 4u, 8u, 16u, 64u})
      for (u32 own_stores : {0u, 1u, 2u})
        for (u32 common_stores : {0u, 1u}) {
          double ns = median_ns(REPEATS, [&] {
            stores<<<shape.first, shape.second>>>(asked, own, common, own_stores, common_stores,
                                                  rounds);
          });
          std::printf("%u,%u,%u,%u,%u,%.2f\n", shape.first, shape.second, rounds, own_stores,
                      common_stores, ns / 1e3);
        }
}
