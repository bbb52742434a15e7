// Reads of random words of an array that all blocks share, for benchmarks/microbenchmarks.py, which
// counts the sectors that the L1s and the L2 read.
//
// Each lane reads `trips` words of `words`, which it finds by a hash; a warp waits for each of its
// loads. If `whole`, each block has an SM. If `cached`, the L2 has the array, else DRAM.
#include "device.cuh"

constexpr int WHOLE_SM = 150 * 1024;
constexpr u64 WORDS = 1ull << 28, L2_WORDS = 1ull << 26;

__global__ void gathers(const u32* data, u32* out, u32 words, u32 trips) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  bool any = false;
#pragma unroll 1
  for (u32 trip = 0; trip < trips; ++trip) {
    u32 value = data[hashed(thread, trip + any) % words];
    sum += value;
    any = __shfl_xor_sync(~0u, value == 0, 1);  // never: all are odd, but the warp waits for them
  }
  out[thread] = sum;
}

int main() {
  auto data = static_cast<const u32*>(random_memory(WORDS * sizeof(u32)));
  auto out = device_memory<u32>(1 << 24);
  CHECK(cudaFuncSetAttribute(gathers, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
  std::printf("kernel,blocks,threads,words,trips,whole,cached\n");
  auto measure = [&](u32 blocks, u32 threads, u32 words, u32 trips, bool whole, bool cached) {
    read_all<<<1056, 256>>>(data + WORDS - L2_WORDS, L2_WORDS, out);  // leaves nothing else in the L2
    if (cached) read_all<<<1056, 256>>>(data, words, out);
    gathers<<<blocks, threads, whole ? WHOLE_SM : 0>>>(data, out, words, trips);
    finish();
    std::printf("gathers,%u,%u,%u,%u,%d,%d\n", blocks, threads, words, trips, whole, cached);
  };
  for (bool cached : {false, true})
    for (u32 words : {2048u, 8192u, 32768u, 131072u, 1u << 20}) {
      measure(4, 1024, words, 8, true, cached);
      measure(32, 256, words, 1, true, cached);
      measure(132, 256, words, 1, true, cached);
      measure(132, 256, words, 16, true, cached);
      measure(132, 1024, words, 16, true, cached);
      measure(1056, 256, words, 1, false, cached);
      measure(1056, 256, words, 16, false, cached);
      measure(16384, 256, words, 1, false, cached);
    }
  return 0;
}
