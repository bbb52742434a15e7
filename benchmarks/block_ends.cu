// When a block makes room whose last instructions are stores, for benchmarks/microbenchmarks.py.
//
// An SM has room for one block. Each lasts 3000 clocks, then its threads store.
// `turnaround_clocks` is the mean interval between the starts of two blocks of an SM, less these
// clocks.
#include <algorithm>
#include <map>
#include <vector>

#include "device.cuh"

constexpr int WHOLE_SM_BYTES = 180 * 1024;  // of shared memory: one block on each SM
constexpr int BLOCKS_PER_SM = 40, MOST_THREADS = 1024, MOST_STORES = 16;
constexpr u32 WAIT_CLOCKS = 1000, REST_CLOCKS = 2000;  // before and after its start is recorded

struct Start {
  u64 clock;
  u32 sm;
};

template <int STORES>
__global__ void end_with_stores(Start* starts, u32* out, u32 wait) {
  u64 begin = clock_of_sm(), now;
  u32 value = threadIdx.x * 77 + blockIdx.x;
  do {
    now = clock_of_sm();
  } while (now - begin < wait);
  if (threadIdx.x == 0)
    starts[blockIdx.x] = {begin, multiprocessor()};
  while (clock_of_sm() - begin < wait + REST_CLOCKS) {
  }
#pragma unroll
  for (int i = 0; i < STORES; ++i)
    out[(u64(blockIdx.x) * STORES + i) * blockDim.x + threadIdx.x] = value + i;
}

template <int STORES>
void measure(int blocks, Start* starts, u32* out) {
  CHECK(cudaFuncSetAttribute(end_with_stores<STORES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             WHOLE_SM_BYTES));
  for (int threads : {32, 256, 1024}) {
    end_with_stores<STORES><<<blocks, threads, WHOLE_SM_BYTES>>>(starts, out, WAIT_CLOCKS);
    finish();
    std::vector<Start> found(blocks);
    CHECK(cudaMemcpy(found.data(), starts, blocks * sizeof(Start), cudaMemcpyDeviceToHost));
    std::map<u32, std::vector<u64>> clocks_by_sm;
    for (const Start& start : found)
      clocks_by_sm[start.sm].push_back(start.clock);
    double sum = 0;
    int intervals = 0;
    for (auto& sm_and_clocks : clocks_by_sm) {
      auto& clocks = sm_and_clocks.second;
      std::sort(clocks.begin(), clocks.end());
      for (size_t i = 1; i < clocks.size(); ++i)
        sum += double(clocks[i] - clocks[i - 1]) - (WAIT_CLOCKS + REST_CLOCKS);
      intervals += int(clocks.size()) - 1;
    }
    std::printf("%d,%d,%.1f\n", STORES, threads, sum / intervals);
  }
}

int main() {
  int blocks = multiprocessors() * BLOCKS_PER_SM;
  Start* starts = device_memory<Start>(blocks);
  void* out = random_memory(u64(blocks) * MOST_THREADS * MOST_STORES * sizeof(u32));
  std::printf("stores_per_thread,threads,turnaround_clocks\n");
  measure<0>(blocks, starts, static_cast<u32*>(out));
  measure<1>(blocks, starts, static_cast<u32*>(out));
  measure<4>(blocks, starts, static_cast<u32*>(out));
  measure<16>(blocks, starts, static_cast<u32*>(out));
  return 0;
}
