// Additions by loops of compare-and-swap in global memory, for benchmarks/microbenchmarks.py, which
// counts the tries.
//
// Each thread adds once to one of `words` words, each in a line of its own. One addition in `every`
// adds 1, the others, and all if it is 0, do not change the word. The loop is that of the source
// (`swaps`), or that which ptxas makes of an addition of halves (`halves`). Of `firsts`, whose loop is
// that of the source, only the first thread of a block adds.
#include <cuda_fp16.h>

#include "device.cuh"

constexpr u32 SPREAD_WORDS = 32, MOST_WORDS = 65536;
constexpr double MOST_TRIES = 6e7;
constexpr double MOST_CHANGES = 1500;  // of a half, which counts to 2048

__device__ u32 addend(u32 thread, u32 every) { return every && hashed(thread, 1) % every == 0; }

__device__ void add(u32* word, u32 value) {
  u32 old = *word, expected;
  do {
    expected = old;
    old = atomicCAS(word, expected, expected + value);
  } while (old != expected);
}

__global__ void swaps(u32* sums, u32 words, u32 every) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  add(sums + u64(hashed(thread, 3) % words) * SPREAD_WORDS, addend(thread, every));
}

__global__ void firsts(u32* sums, u32 words, u32 every) {
  if (threadIdx.x == 0) add(sums + u64(hashed(blockIdx.x, 3) % words) * SPREAD_WORDS, addend(blockIdx.x, every));
}

__global__ void halves(half2* sums, u32 words, u32 every) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  half value = __float2half(float(addend(thread, every)));
  atomicAdd(&sums[u64(hashed(thread, 3) % words) * SPREAD_WORDS].x, value);
}

int main() {
  auto sums = device_memory<u32>(u64(MOST_WORDS) * SPREAD_WORDS);
  double resident = multiprocessors() * 2048.0;
  std::printf("kernel,blocks,threads,words,every\n");
  auto measure = [&](u32 blocks, u32 threads, u32 words, u32 every) {
    double lanes = double(blocks) * threads, waiting = lanes < resident ? lanes : resident;
    double changes = every ? lanes / every : 0;
    if (changes * waiting / words > MOST_TRIES || (every && changes < 32)) return;
    for (bool half : {false, true}) {
      if (half && changes / words > MOST_CHANGES) continue;
      CHECK(cudaMemset(sums, 0, u64(MOST_WORDS) * SPREAD_WORDS * sizeof(u32)));
      if (half)
        halves<<<blocks, threads>>>(reinterpret_cast<half2*>(sums), words, every);
      else
        swaps<<<blocks, threads>>>(sums, words, every);
      finish();
      std::printf("%s,%u,%u,%u,%u\n", half ? "halves" : "swaps", blocks, threads, words, every);
    }
  };
  for (u32 words : {1u, 16u, 1024u, MOST_WORDS})
    for (u32 blocks : {1u, 8u, 132u, 1056u, 8448u, 33792u})
      for (u32 every : {0u, 1u, 4u, 16u, 64u, 256u, 1024u, 4096u, 16384u, 65536u}) measure(blocks, 256, words, every);
  for (u32 every : {0u, 1u, 16u, 256u}) {
    measure(1, 32, 1, every);
    measure(32, 1024, 16, every);
    measure(264, 1024, 1024, every);
    measure(2112, 32, 16, every);
    measure(4224, 32, 1024, every);
  }
  for (u32 blocks : {1u, 8u, 33u, 66u, 132u, 264u, 1056u, 4224u})
    for (u32 words : {1u, 16u}) {
      CHECK(cudaMemset(sums, 0, u64(MOST_WORDS) * SPREAD_WORDS * sizeof(u32)));
      firsts<<<blocks, 256>>>(sums, words, 1);
      finish();
      std::printf("firsts,%u,256,%u,1\n", blocks, words);
    }
  return 0;
}
