// Loads and atomics of which each needs the result of the one before, and stores and additions that need
// none, at random lines of a table, for benchmarks/microbenchmarks.py.
//
// Each group of 32 / `lines` lanes of a warp follows its own chain through a table of 128-byte lines, whose
// words all hold the number of the next line: a single cycle in random order. Lane i reads word i of its
// line. So a warp's request has as many lines (1 to 32), of one sector each from 4 lines on. `clocks` are
// those of a step, the mean of all warps of the launch. Before each launch all SMs read the table, so that
// the L2 holds what it can.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "device.cuh"

constexpr u32 STEPS = 192, MOST_WARPS = 64, CHECKED = 512;

enum Kind : u32 { LOAD, LOAD_L2, ADD, SWAP, REDUCE, STORE };
const char* const NAMES[] = {"load", "load_l2", "add", "swap", "reduce", "store"};

template <u32 KIND>
__device__ u32 follow(u32* word, u32 step) {
  u32 next = 0;
  if (KIND == LOAD) asm volatile("ld.global.u32 %0, [%1];" : "=r"(next) : "l"(word));
  if (KIND == LOAD_L2) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(next) : "l"(word));
  if (KIND == ADD) next = atomicAdd(word, 0u);
  if (KIND == SWAP) next = atomicCAS(word, ~0u, 0u);
  if (KIND == REDUCE) asm volatile("red.global.add.u32 [%0], %1;" ::"l"(word), "r"(1u) : "memory");
  if (KIND == STORE) asm volatile("st.global.u32 [%0], %1;" ::"l"(word), "r"(step) : "memory");
  return next;
}

template <u32 KIND>
__global__ void __launch_bounds__(1024, 2)
    chains(u32* table, u32 count, u32 lines, u32 steps, u32* ends, u32* clocks) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  u32 group = thread / (32 / lines);
  u32 line = hashed(group, 5) % count;
  __syncthreads();
  u64 begin = clock_of_sm();
#pragma unroll 1
  for (u32 step = 0; step < steps; ++step) {
    u32 next = follow<KIND>(table + u64(line) * 32 + lane, step);
    line = KIND >= REDUCE ? __umulhi(hashed(group, step), count) : next;
  }
  if (KIND >= REDUCE) __threadfence();
  u32 voted;  // needs the results of all lanes
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, -1; vote.sync.ballot.b32 %0, p, -1; }"
               : "=r"(voted) : "r"(line) : "memory");
  u64 end = clock_of_sm();
  ends[thread] = voted == ~0u ? line : 0;
  if (lane == 0) clocks[thread / 32] = u32(end - begin);
}

__global__ void fill_lines(const u32* next, u32* table, u64 words) {
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += u64(gridDim.x) * blockDim.x)
    table[i] = next[i / 32];
}

struct Table {
  u32 kib, count;
  std::vector<u32> next;
  u32* words;

  Table(u32 kib_, u32* memory) : kib(kib_), count(kib_ * 8), next(count), words(memory) {
    // Sattolo's algorithm: one cycle.
    std::vector<u32> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937 random(kib);
    for (u32 i = count - 1; i > 0; --i) std::swap(order[i], order[random() % i]);
    for (u32 i = 0; i < count; ++i) next[i] = order[i];
    fill();
  }

  void fill() {
    u32* listed = device_memory<u32>(count);
    CHECK(cudaMemcpy(listed, next.data(), count * sizeof(u32), cudaMemcpyHostToDevice));
    fill_lines<<<1056, 512>>>(listed, words, u64(count) * 32);
    finish();
    CHECK(cudaFree(listed));
  }
};

u32 *ends, *clocks;

template <u32 KIND>
bool run(Table& table, u32 sms, u32 warps, u32 lines) {
  u32 blocks = warps > 32 ? 2 * sms : sms, threads = warps > 32 ? 1024 : warps * 32;
  u32 all = blocks * threads;
  std::vector<u32> found(all), taken(all / 32);
  double mean = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    read_all<<<1056, 512>>>(table.words, u64(table.count) * 32, ends);
    chains<KIND><<<blocks, threads>>>(table.words, table.count, lines, STEPS, ends, clocks);
    finish();
    CHECK(cudaMemcpy(taken.data(), clocks, all / 32 * sizeof(u32), cudaMemcpyDeviceToHost));
    mean = std::accumulate(taken.begin(), taken.end(), 0.0) / (all / 32) / STEPS;
  }
  CHECK(cudaMemcpy(found.data(), ends, all * sizeof(u32), cudaMemcpyDeviceToHost));
  if (KIND < REDUCE)
    for (u32 thread = 0; thread < all; thread += 1 + all / CHECKED) {
      u32 line = hashed(thread / (32 / lines), 5) % table.count;
      for (u32 step = 0; step < STEPS; ++step) line = table.next[line];
      if (found[thread] != line) {
        std::fprintf(stderr, "%s: thread %u ends at %u, not %u\n", NAMES[KIND], thread, found[thread], line);
        return false;
      }
    }
  std::printf("%s,%u,%u,%u,%u,%.1f\n", NAMES[KIND], table.kib, sms, warps, lines, mean);
  return true;
}

template <u32 KIND>
bool run_all(Table& table, bool few) {
  u32 every = multiprocessors();
  bool right = true;
  for (u32 sms : {1u, 16u, every}) {
    if (few && sms == 16) continue;
    for (u32 warps : {1u, 2u, 4u, 8u, 16u, 32u, MOST_WARPS}) {
      if (warps > 32 && sms != every) continue;  // two blocks, which would lie on two SMs
      for (u32 lines : {1u, 2u, 4u, 8u, 16u, 32u}) right &= run<KIND>(table, sms, warps, lines);
    }
  }
  return right;
}

int main() {
  size_t most = size_t(4) << 30;
  auto* memory = device_memory<u32>(most / sizeof(u32));
  u32 every = multiprocessors();
  ends = device_memory<u32>(every * 2048);
  clocks = device_memory<u32>(every * MOST_WARPS);
  std::printf("kernel,table_kib,sms,warps,lines,clocks\n");
  bool right = true;
  for (u32 kib : {16u, 64u, 128u, 1024u, 8192u, 262144u, 4194304u}) {
    Table table(kib, memory);
    right &= run_all<LOAD>(table, kib < 1024);
    if (kib < 1024) continue;
    right &= run_all<LOAD_L2>(table, true);
    right &= run_all<ADD>(table, false);
    right &= run_all<SWAP>(table, false);
    if (kib == 4194304) continue;
    right &= run_all<REDUCE>(table, true);
    table.fill();
    right &= run_all<STORE>(table, true);
  }
  return right ? 0 : 1;
}
