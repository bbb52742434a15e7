// What a warp makes room for when it ends before the others of its block, for
// benchmarks/microbenchmarks.py.
//
// Of each block some warps last, each `stride`-th of the first `lasting * stride`; the others end at
// once. `most_blocks` is the most blocks of one SM that last at the same time, `blocks` as many as the
// SM would hold if a block kept all its room until its last warp ends. `first_0` to `first_3` are the
// percentages of the blocks whose first warp has a number on its SM (%warpid) of that remainder by 4.
#include <algorithm>
#include <map>
#include <vector>

#include "device.cuh"

constexpr int BLOCKS_PER_SM = 160;
constexpr u32 LAST_CLOCKS = 60000;

struct Span {
  u64 begin, end;
  u32 sm, warp;
};

template <int VALUES>
__global__ void last(Span* spans, const u32* memory, u32* out, u32 lasting, u32 stride) {
  u32 warp = threadIdx.x / 32;
  if (warp % stride != 0 || warp >= lasting * stride) return;
  u64 begin = clock_of_sm();
  u32 values[VALUES];
#pragma unroll
  for (int i = 0; i < VALUES; ++i) values[i] = memory[i * 1024 + threadIdx.x];
  while (clock_of_sm() - begin < LAST_CLOCKS) {
  }
  u32 sum = 0;
#pragma unroll
  for (int i = 0; i < VALUES; ++i) sum = (sum ^ values[i]) * 77;
  if (sum == 1) out[threadIdx.x] = sum;
  u32 number;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(number));
  if (threadIdx.x == 0) spans[blockIdx.x] = {begin, clock_of_sm(), multiprocessor(), number};
}

int most_at_once(const std::vector<Span>& spans) {
  std::map<u32, std::vector<std::pair<u64, int>>> changes_by_sm;
  for (const Span& span : spans) {
    changes_by_sm[span.sm].push_back({span.begin, 1});
    changes_by_sm[span.sm].push_back({span.end, -1});
  }
  int most = 0;
  for (auto& sm_and_changes : changes_by_sm) {
    auto& changes = sm_and_changes.second;
    std::sort(changes.begin(), changes.end());
    int now = 0;
    for (auto& change : changes) most = std::max(most, now += change.second);
  }
  return most;
}

template <int VALUES>
void measure(int threads, int shared_bytes, u32 lasting, u32 stride, Span* spans, void* memory) {
  int blocks = multiprocessors() * BLOCKS_PER_SM, held = 0;
  CHECK(cudaFuncSetAttribute(last<VALUES>, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, last<VALUES>, threads, shared_bytes));
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, last<VALUES>));
  u32* words = static_cast<u32*>(memory);
  last<VALUES><<<blocks, threads, shared_bytes>>>(spans, words, words, lasting, stride);
  finish();
  std::vector<Span> found(blocks);
  CHECK(cudaMemcpy(found.data(), spans, blocks * sizeof(Span), cudaMemcpyDeviceToHost));
  double firsts[4] = {};
  for (const Span& span : found) firsts[span.warp % 4] += 100.0 / blocks;
  std::printf("%d,%d,%d,%u,%u,%d,%d,%.1f,%.1f,%.1f,%.1f\n", threads, attributes.numRegs, shared_bytes,
              lasting, stride, held, most_at_once(found), firsts[0], firsts[1], firsts[2], firsts[3]);
}

int main() {
  Span* spans = device_memory<Span>(u64(multiprocessors()) * BLOCKS_PER_SM);
  void* memory = random_memory(1 << 20);
  std::printf("threads,registers,shared_bytes,lasting,stride,blocks,most_blocks,first_0,first_1,first_2,first_3\n");
  for (int threads : {128, 256, 512, 1024})
    for (u32 lasting : {1, 2, 4})
      for (u32 stride : {1, 4})
        if (lasting * stride * 32 <= u32(threads))
          measure<1>(threads, 0, lasting, stride, spans, memory);
  for (int threads : {256, 512})
    for (u32 lasting : {1, 2, 4}) {
      measure<48>(threads, 0, lasting, 1, spans, memory);
      measure<96>(threads, 0, lasting, 1, spans, memory);
    }
  for (u32 lasting : {1, 2}) measure<1>(256, 40 << 10, lasting, 1, spans, memory);
}
