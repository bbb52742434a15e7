// Whole lines that warps store again and again to one place, or to places that move on, all of which
// the L2 holds, for benchmarks/microbenchmarks.py.

#include "device.cuh"
#include "median_time.cuh"

constexpr u32 LINES = 1 << 16, LINE_WORDS = 32, THREADS = 256;
constexpr int REPEATS = 9;

// In each round a warp stores one line: the one `step` rounds of the grid behind that of before.
__global__ void stores(u32* words, u32 rounds, u32 step, u32 spread) {
  u32 warps = gridDim.x * blockDim.x / 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  u32 line = warp * spread;
#pragma unroll 1
  for (u32 round = 0; round < rounds; ++round) {
    words[line % LINES * LINE_WORDS + threadIdx.x % 32] = round;
    line += step * warps;
    asm volatile("" ::: "memory");
  }
}

int main() {
  u32* words = device_memory<u32>(LINES * LINE_WORDS);
  std::printf("blocks_per_sm,step,spread,sectors_per_ns\n");
  for (u32 per_sm : {1u, 2u, 4u, 8u})
    for (u32 step : {0u, 1u})
      for (u32 spread : {1u, 4u, 7u, 8u, 16u}) {
        u32 blocks = per_sm * multiprocessors();
        double ns[2];
        for (u32 longer : {0u, 1u})
          ns[longer] = median_ns(
              REPEATS, [&] { stores<<<blocks, THREADS>>>(words, longer ? 2304 : 256, step, spread); });
        double sectors = double(blocks) * THREADS / 32 * (2304 - 256) * 4;
        std::printf("%u,%u,%u,%.1f\n", per_sm, step, spread, sectors / (ns[1] - ns[0]));
      }
}
