// Threads that go through a row each and store to it, for benchmarks/microbenchmarks.py, which counts
// the sectors that the L1s read.
//
// In each trip a lane reads `loads` words of its row, stores `stores` of them, from word `begin` on,
// in their places, and waits `after` clocks. Rows of 64 sectors lie `pitch` words apart.
#include "device.cuh"

constexpr u64 WORDS = 1ull << 29;
constexpr u32 ROW = 512;

__device__ __forceinline__ void wait(u32 clocks) {
  for (u32 begin = clock_low(); clock_low() - begin < clocks;) {
  }
}

template <u32 LOADS, u32 STORES, u32 BEGIN>
__global__ void updates(u32* data, u64 pitch, u32 after) {
  u32* row = data + (u64(blockIdx.x) * blockDim.x + threadIdx.x) * pitch;
#pragma unroll 1
  for (u32 i = 0; i < ROW; i += LOADS) {
    u32 values[LOADS];
#pragma unroll
    for (u32 j = 0; j < LOADS; ++j)
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(values[j]) : "l"(row + i + j) : "memory");
#pragma unroll
    for (u32 j = BEGIN; j < BEGIN + STORES; ++j)
      asm volatile("st.global.u32 [%0], %1;" ::"l"(row + i + j), "r"(values[j] + 2) : "memory");
    if (after) wait(after);
  }
}

int main() {
  auto data = static_cast<u32*>(random_memory(WORDS * sizeof(u32)));
  std::printf("kernel,loads,stores,begin,blocks,threads,pitch,after\n");
  auto measure = [&](auto kernel, u32 loads, u32 stores, u32 begin, u32 threads, u64 pitch, u32 after) {
    u32 blocks = multiprocessors();
    kernel<<<blocks, threads>>>(data, pitch, after);
    finish();
    std::printf("updates,%u,%u,%u,%u,%u,%llu,%u\n", loads, stores, begin, blocks, threads, pitch, after);
  };
  for (u32 threads : {32u, 256u})
    for (u32 after : {0u, 3000u}) {
      measure(updates<1, 1, 0>, 1, 1, 0, threads, 1024, after);
      measure(updates<2, 1, 0>, 2, 1, 0, threads, 1024, after);
      measure(updates<2, 2, 0>, 2, 2, 0, threads, 1024, after);
      measure(updates<4, 1, 0>, 4, 1, 0, threads, 1024, after);
      measure(updates<4, 1, 3>, 4, 1, 3, threads, 1024, after);
      measure(updates<4, 2, 0>, 4, 2, 0, threads, 1024, after);
      measure(updates<4, 4, 0>, 4, 4, 0, threads, 1024, after);
      measure(updates<8, 8, 0>, 8, 8, 0, threads, 1024, after);
    }
  for (u32 threads : {32u, 256u})
    for (u64 pitch : {513ull, 4096ull}) {
      measure(updates<1, 1, 0>, 1, 1, 0, threads, pitch, 0);
      measure(updates<2, 2, 0>, 2, 2, 0, threads, pitch, 0);
      measure(updates<4, 4, 0>, 4, 4, 0, threads, pitch, 0);
    }
  return 0;
}
