// What the caches keep beside other reads and writes, for benchmarks/microbenchmarks.py, which
// counts hits and the bytes that DRAM reads.
//
// `beside_stream`: the warps of 8 blocks on each SM read lines of an array of `size` MiB at random,
// ten in the mean, past the L1. Each `every`-th time they also read, or with `stores` write, a line
// that no other warp uses.
// `rows_twice`: `size` blocks on each SM read a row of `lines` lines from end to end, and again when
// all threads of the block have, through the L1; with `stores`, they write a row elsewhere while
// they read again. They do so for `steps` rows.
// `stored_rows`: they write a row instead, and read it when all threads of the block have.
#include "device.cuh"

constexpr int THREADS = 256, WORDS = 32;  // of a line
constexpr u64 LINES_OF_MIB = 8192;

__device__ __forceinline__ u32 read_l2(const u32* from) {
  u32 value;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ u32 read_cached(const u32* from) {
  u32 value;
  asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__global__ void beside_stream(const u32* array, const u32* stream, u32* written, u32 lines,
                              int steps, int every, int stores) {
  u32 worker = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, sum = 0;
  u32 workers = gridDim.x * blockDim.x / 32;
  for (int step = 0; step < steps; ++step) {
    sum ^= read_l2(array + u64(hashed(worker, step) % lines) * WORDS + lane);
    if (every && step % every == 0) {
      u64 at = (u64(step / every) * workers + worker) * WORDS + lane;
      if (stores)
        written[at] = sum;
      else
        sum ^= read_l2(stream + at);
    }
  }
  if (sum == 0x12345678u)
    *written = sum;
}

__global__ void rows_twice(const u32* rows, u32* written, int lines, int rounds, int stores) {
  u32 sum = 0;
  for (int round = 0; round < rounds; ++round) {
    u64 first = (u64(round) * gridDim.x + blockIdx.x) * lines * WORDS;
    for (int pass = 0; pass < 2; ++pass) {
      for (int i = threadIdx.x; i < lines * WORDS; i += blockDim.x) {
        u32 value = read_cached(rows + first + i);
        sum ^= value;
        if (pass && stores)
          written[first + i] = value;
      }
      __syncthreads();
    }
  }
  if (sum == 0x12345678u)
    *written = sum;
}

__global__ void stored_rows(u32* rows, u32* sink, int lines, int rounds) {
  u32 sum = 0;
  for (int round = 0; round < rounds; ++round) {
    u64 first = (u64(round) * gridDim.x + blockIdx.x) * lines * WORDS;
    for (int i = threadIdx.x; i < lines * WORDS; i += blockDim.x)
      rows[first + i] = i ^ round;
    __syncthreads();
    for (int i = threadIdx.x; i < lines * WORDS; i += blockDim.x)
      sum ^= read_cached(rows + first + (i ^ WORDS * 8));
    __syncthreads();
  }
  if (sum == 0x12345678u)
    *sink = sum;
}

int main() {
  auto* words = static_cast<u32*>(random_memory(1ull << 30));
  u32 *stream = words + (64ull << 20) / 4, *written = words + (256ull << 20) / 4;
  int sms = multiprocessors();
  std::printf("kernel,size,lines,every,steps,stores\n");
  for (int per_sm : {1, 2, 4, 8})
    for (int lines : {16, 64, 128})
      for (int stores : {0, 1}) {
        int rounds = 2048 / (per_sm * lines) + 2;
        rows_twice<<<sms * per_sm, THREADS>>>(words, written, lines, rounds, stores);
        finish();
        std::printf("rows_twice,%d,%d,0,%d,%d\n", per_sm, lines, rounds, stores);
      }
  for (int per_sm : {1, 2, 4, 8})
    for (int lines : {16, 64, 128}) {
      int rounds = 2048 / (per_sm * lines) + 2;
      stored_rows<<<sms * per_sm, THREADS>>>(words, written, lines, rounds);
      finish();
      std::printf("stored_rows,%d,%d,0,%d,1\n", per_sm, lines, rounds);
    }
  for (int mib : {12, 20, 24, 28, 32})
    for (int every : {0, 8, 4, 2})
      for (int stores : {0, 1}) {
        if (!every && stores)
          continue;
        u32 lines = mib * LINES_OF_MIB;
        int steps = lines * 10 / (sms * 64);
        beside_stream<<<sms * 8, THREADS>>>(words, stream, written, lines, steps, every, stores);
        finish();
        std::printf("beside_stream,%d,%u,%d,%d,%d\n", mib, lines, every, steps, stores);
      }
  return 0;
}
