// Blocks that read the same lines at the same time, for benchmarks/microbenchmarks.py.
//
// Groups of `readers` blocks, neighbours in launch order, read a stream of lines: each warp reads
// `lines` of them in a trip, and the next trip's addresses wait for all of them. The lines are in
// DRAM at first (`cold`), and in the L2 for a second launch (`warm`). The clocks are those of a
// trip, the mean over all blocks.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device.cuh"

constexpr int TRIPS = 128, LAUNCHES = 5;

template <int LINES>
__global__ void streams(const u32* data, u32 mask, int readers, int trips, u64 base, u32* out,
                        u32* clocks) {
  int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
  u64 group = blockIdx.x / readers;
  const u32* from = data + base + group * trips * warps * LINES * 32 + lane;
  u32 sum = 0, zero = 0;
  __syncthreads();
  u64 begin = clock_of_sm();
  for (int trip = 0; trip < trips; ++trip) {
    const u32* at = from + u64(trip * warps + warp) * LINES * 32 + zero;
    u32 values[LINES];
#pragma unroll
    for (int line = 0; line < LINES; ++line)
      values[line] = at[line * 32];
#pragma unroll
    for (int line = 0; line < LINES; ++line)
      sum += values[line];
    zero = sum & mask;
  }
  __syncthreads();
  u64 end = clock_of_sm();
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (threadIdx.x == 0)
    clocks[blockIdx.x] = u32(end - begin);
}

template <int LINES>
void measure(int sms, const std::vector<u32>& host, const u32* data, u64 words, u32* out,
             u32* clocks, u32* flush, u64 flush_bytes) {
  for (int per_sm : {1, 2})
    for (int warps : {1, 4, 8})
      for (int readers : {1, 2, 4, 8, 16, 33, 66, 132, 264}) {
        int blocks = per_sm * sms / readers * readers;
        if (readers > per_sm * sms)
          continue;
        u64 used = u64(blocks / readers) * TRIPS * warps * LINES * 32;
        double mean[2] = {0, 0};
        for (int launch = 0; launch < LAUNCHES; ++launch) {
          u64 base = (u64(launch) * 104729 * 1024) % (words - used) / 32 * 32;
          CHECK(cudaMemset(flush, launch, flush_bytes));
          for (int warm = 0; warm < 2; ++warm) {
            streams<LINES><<<blocks, warps * 32>>>(data, 0, readers, TRIPS, base, out, clocks);
            finish();
            std::vector<u32> found(blocks), sums(blocks * warps * 32);
            CHECK(cudaMemcpy(found.data(), clocks, blocks * 4, cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(sums.data(), out, sums.size() * 4, cudaMemcpyDeviceToHost));
            double total = 0;
            for (u32 each : found)
              total += each;
            mean[warm] += total / blocks / TRIPS / LAUNCHES;
            if (launch == 0)
              for (int b = 0; b < blocks; b += 37) {
                u32 sum = 0;
                int w = b % warps, lane = b % 32;
                for (int t = 0; t < TRIPS; ++t)
                  for (int l = 0; l < LINES; ++l)
                    sum += host[base + u64(b / readers) * TRIPS * warps * LINES * 32 +
                                (u64(t * warps + w) * LINES + l) * 32 + lane];
                if (sum != sums[(b * warps + w) * 32 + lane]) {
                  std::printf("wrong sum\n");
                  std::exit(1);
                }
              }
          }
        }
        std::printf("%d,%d,%d,%d,%.1f,%.1f\n", LINES, per_sm, warps, readers, mean[0], mean[1]);
      }
}

int main() {
  int sms = multiprocessors();
  u64 words = 96ull << 20, flush_bytes = 256ull << 20;
  std::vector<u32> host(words);
  u32 state = 12345;
  for (u32& word : host)
    word = state = state * 1664525u + 1013904223u;
  u32* data = device_memory<u32>(words);
  CHECK(cudaMemcpy(data, host.data(), words * 4, cudaMemcpyHostToDevice));
  u32* out = device_memory<u32>(sms * 2 * 256);
  u32* clocks = device_memory<u32>(sms * 2);
  u32* flush = device_memory<u32>(flush_bytes / 4);
  std::printf("lines,blocks_per_sm,warps,readers,cold_clocks,warm_clocks\n");
  measure<1>(sms, host, data, words, out, clocks, flush, flush_bytes);
  measure<4>(sms, host, data, words, out, clocks, flush, flush_bytes);
  return 0;
}
