// The latency of one warp's loads of several lines, for benchmarks/microbenchmarks.py: of lines
// that are neighbours, or lie at random, in the L2 and in DRAM.
//
// The lanes read the lines in turn, each a word of its own. Quantiles and means are of 496 loads.
#include <algorithm>
#include <numeric>
#include <vector>

#include "device.cuh"

constexpr u64 MIB = 1 << 20;
constexpr u64 BYTES = 1024 * MIB, CACHED_BYTES = 8 * MIB, EVICTING_BYTES = 256 * MIB;
constexpr u32 LINE_BYTES = 128, SAMPLES = 512, WARM_UP = 16;

__global__ void load_lines(const u32* data, u32 line_mask, u32 lines, u32 neighbours, u32 seed,
                           u32 samples, u32* clocks, u32* sink) {
  u32 lane = threadIdx.x, used = 0;
  for (u32 sample = 0; sample < samples; ++sample) {
    u32 random = hashed(seed, sample);
    u32 line = neighbours ? (random & line_mask & ~31u) + lane % lines
                          : hashed(random, lane % lines) & line_mask;
    const u32* address = data + u64(line) * 32 + lane / lines;
    u32 value, ballot;
    __syncwarp();
    u32 begin = clock_low();
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    // All lanes need their values for this.
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xFFFFFFFF; }"
        : "=r"(ballot)
        : "r"(value)
        : "memory");
    u32 end = clock_low();
    used ^= ballot;
    if (lane == 0)
      clocks[sample] = end - begin;
  }
  if (used == 0x1234567)
    *sink = used;
}

// Reads a word of each sector.
__global__ void read_sectors(const u32* words, u64 count, u32* sink) {
  u32 used = 0;
  for (u64 i = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * 8; i < count;
       i += u64(gridDim.x) * blockDim.x * 8)
    used ^= words[i];
  if (used == 0x1234567)
    *sink = used;
}

int main() {
  u32* data = static_cast<u32*>(random_memory(BYTES));
  u32* other = static_cast<u32*>(random_memory(EVICTING_BYTES));
  u32 *clocks = device_memory<u32>(SAMPLES), *sink = device_memory<u32>(1);
  std::printf("level,neighbours,lines,mean_clocks,p05,p50,p95\n");
  for (u32 cached : {0, 1})
    for (u32 neighbours : {0, 1})
      for (u32 lines : {1, 2, 4, 8, 16, 32}) {
        if (cached) {
          read_sectors<<<132, 512>>>(data, CACHED_BYTES / sizeof(u32), sink);
          read_sectors<<<1, 512>>>(data, CACHED_BYTES / sizeof(u32), sink);
        } else {
          read_sectors<<<1056, 512>>>(other, EVICTING_BYTES / sizeof(u32), sink);
        }
        u32 mask = (cached ? CACHED_BYTES : BYTES) / LINE_BYTES - 1;
        u32 seed = 1000 * lines + 77 * neighbours + cached;
        load_lines<<<1, 32>>>(data, mask, lines, neighbours, seed, SAMPLES, clocks, sink);
        finish();
        std::vector<u32> found(SAMPLES);
        CHECK(cudaMemcpy(found.data(), clocks, SAMPLES * sizeof(u32), cudaMemcpyDeviceToHost));
        found.erase(found.begin(), found.begin() + WARM_UP);
        std::sort(found.begin(), found.end());
        size_t count = found.size();
        double mean = std::accumulate(found.begin(), found.end(), 0.0) / count;
        std::printf("%s,%u,%u,%.1f,%u,%u,%u\n", cached ? "l2" : "dram", neighbours, lines, mean,
                    found[count / 20], found[count / 2], found[count * 19 / 20]);
      }
  return 0;
}
