// The latency of loads of DRAM while all SMs load and store, for benchmarks/microbenchmarks.py.
//
// The warps of all SMs copy 512 MiB, or read them only. Each waits for a load of 4 or 16 bytes a
// lane, then stores as much after each 1 or 2 loads, or never (no `loads_per_store`). Bytes a
// clock are those of all SMs, by events and the SM clock that the driver tells; quantiles are of
// bins of 16 clocks.
#include <algorithm>
#include <vector>

#include "device.cuh"

constexpr int BINS = 512, BIN_CLOCKS = 16;
constexpr u64 BYTES = 512ull << 20;

__device__ __forceinline__ void load(const u32* from, u32& value) {
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
}

__device__ __forceinline__ void load(const uint4* from, uint4& value) {
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
}

__device__ __forceinline__ u32 combined(u32 a, u32 b) { return a ^ b; }
__device__ __forceinline__ uint4 combined(uint4 a, uint4 b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}
__device__ __forceinline__ u32 folded(u32 a) { return a; }
__device__ __forceinline__ u32 folded(uint4 a) { return a.x ^ a.y ^ a.z ^ a.w; }

// `bins` counts the warps' loads by their latency; warps pause between loads, for 0 clocks here.
template <class T, int LOADS_PER_STORE>
__global__ void copy(const T* in, T* out, u64 items, u32 pause, u32* bins, u32* sink) {
  __shared__ u32 counts[BINS];
  for (int i = threadIdx.x; i < BINS; i += blockDim.x)
    counts[i] = 0;
  __syncthreads();
  u64 threads = u64(gridDim.x) * blockDim.x;
  T all = T();
  u32 used = 0, turn = 0;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += threads) {
    T value = all;
    u32 begin = clock_low(), ballot;
    load(in + i, value);
    // All lanes need their values for this.
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xFFFFFFFF; }"
        : "=r"(ballot)
        : "r"(folded(value))
        : "memory");
    used += ballot >> 31;
    asm volatile("" ::"r"(used) : "memory");
    u32 clocks = clock_low() - begin;
    if (threadIdx.x % 32 == 0)
      atomicAdd(counts + min(clocks / BIN_CLOCKS, BINS - 1u), 1u);
    all = combined(all, value);
    if (LOADS_PER_STORE == 1 || (LOADS_PER_STORE == 2 && (turn++ & 1)))
      out[i] = all;
    if (pause) {
      u32 from = clock_low();
      while (clock_low() - from < pause) {
      }
    }
  }
  if (folded(all) == 0x12345 || used == 0x7654321)
    *sink = 1;
  __syncthreads();
  for (int i = threadIdx.x; i < BINS; i += blockDim.x)
    if (counts[i])
      atomicAdd(bins + i, counts[i]);
}

struct Latencies {
  std::vector<u32> counts;  // by bin

  u64 total() const {
    u64 sum = 0;
    for (u32 count : counts)
      sum += count;
    return sum;
  }

  double mean() const {
    double sum = 0;
    for (int i = 0; i < BINS; ++i)
      sum += counts[i] * (double(i) * BIN_CLOCKS + BIN_CLOCKS / 2);
    return sum / total();
  }

  int quantile(double share) const {
    double wanted = share * total();
    u64 passed = 0;
    for (int i = 0; i < BINS; ++i)
      if ((passed += counts[i]) >= wanted)
        return i * BIN_CLOCKS + BIN_CLOCKS / 2;
    return BINS * BIN_CLOCKS;
  }
};

template <class T, int LOADS_PER_STORE>
void measure(const void* in, void* out) {
  u32 *bins = device_memory<u32>(BINS), *sink = device_memory<u32>(1);
  double clocks_per_ms = attribute(cudaDevAttrClockRate);  // kHz
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int warps : {1, 2, 4, 8, 16, 24, 32, 48, 64}) {
    int per_sm = warps > 32 ? 2 : 1;  // blocks
    u64 bytes = warps < 4 ? BYTES / 2 : BYTES;
    CHECK(cudaMemset(bins, 0, BINS * sizeof *bins));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventRecord(begin));
    copy<T, LOADS_PER_STORE><<<multiprocessors() * per_sm, warps / per_sm * 32>>>(
        static_cast<const T*>(in), static_cast<T*>(out), bytes / sizeof(T), 0, bins, sink);
    CHECK(cudaEventRecord(end));
    finish();
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    Latencies latencies{std::vector<u32>(BINS)};
    CHECK(cudaMemcpy(latencies.counts.data(), bins, BINS * sizeof *bins, cudaMemcpyDeviceToHost));
    double read = bytes / (ms * clocks_per_ms);
    double written = LOADS_PER_STORE ? read / LOADS_PER_STORE : 0;
    std::printf("%zu,", sizeof(T));
    if (LOADS_PER_STORE)
      std::printf("%d", LOADS_PER_STORE);
    std::printf(",%d,%.1f,%.1f,%.1f", warps, read, written, latencies.mean());
    for (double share : {0.05, 0.25, 0.5, 0.75, 0.95, 0.99})
      std::printf(",%d", latencies.quantile(share));
    std::printf("\n");
  }
  CHECK(cudaFree(bins));
  CHECK(cudaFree(sink));
}

int main() {
  void *in = random_memory(BYTES), *out = random_memory(BYTES);
  std::printf("bytes_per_lane,loads_per_store,warps_per_sm,read_bytes_per_clock,"
              "written_bytes_per_clock,mean_clocks,p05,p25,p50,p75,p95,p99\n");
  measure<uint4, 0>(in, out);
  measure<uint4, 1>(in, out);
  measure<uint4, 2>(in, out);
  measure<u32, 0>(in, out);
  measure<u32, 1>(in, out);
  measure<u32, 2>(in, out);
  return 0;
}
