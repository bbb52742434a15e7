// The latency of loads of DRAM that lie apart, while all SMs load, for
// benchmarks/microbenchmarks.py.
//
// Each block, or lane, reads a row of its own, one piece after the other; a warp waits for each of
// its loads. Pieces are 32 bytes of a lane, or 128 bytes and more of a block. Bytes a clock are
// those of all SMs while their warps read.
#include <algorithm>
#include <vector>

#include "device.cuh"

constexpr u64 BYTES = 8ull << 30;
constexpr u64 FLUSHED = 256ull << 20;
constexpr int STEPS = 192;

template <class T>
__device__ __forceinline__ u32 loaded(const T* from);

template <>
__device__ __forceinline__ u32 loaded(const u32* from) {
  u32 value;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

template <>
__device__ __forceinline__ u32 loaded(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value.x & value.y & value.z & value.w;
}

// `row` and `step` are in items: from one row to the next, and from a piece of it to the next.
template <class T>
__global__ void read_rows(const T* in, u64 row, u64 step, bool of_lanes, u32* clocks) {
  u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  const T* from = of_lanes ? in + thread * row : in + blockIdx.x * row + threadIdx.x;
  u32 begin = clock_low(), ballot = 0;
  for (int i = 0; i < STEPS; ++i) {
    u32 value = loaded(from + i * step + (ballot == 1));
    // All lanes need their values for this.
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xFFFFFFFF; }"
        : "=r"(ballot)
        : "r"(value)
        : "memory");
  }
  u32 taken = clock_low() - begin;
  if (threadIdx.x % 32 == 0)
    clocks[thread / 32] = taken + (ballot == 2);
}

template <class T>
void measure(void* in, int piece_bytes, int warps_per_sm) {
  bool of_lanes = piece_bytes < 128;
  int warps = of_lanes ? std::min(warps_per_sm, 8) : piece_bytes / int(32 * sizeof(T));
  if (warps > 32 || warps > warps_per_sm)
    return;
  int blocks = multiprocessors() * (warps_per_sm / warps);
  // Rows lie apart by some bytes more than a power of two has, so that they differ in channels.
  u64 step = piece_bytes / sizeof(T), row = step * STEPS + 256 / sizeof(T);
  if ((of_lanes ? blocks * warps * 32 : blocks) * row * sizeof(T) > BYTES)
    return;
  u32* clocks = device_memory<u32>(u64(blocks) * warps);
  CHECK(cudaMemset(static_cast<char*>(in) + BYTES, 1, FLUSHED));
  CHECK(cudaDeviceSynchronize());
  read_rows<<<blocks, warps * 32>>>(static_cast<const T*>(in), row, step, of_lanes, clocks);
  finish();
  std::vector<u32> taken(u64(blocks) * warps);
  CHECK(cudaMemcpy(taken.data(), clocks, taken.size() * sizeof(u32), cudaMemcpyDeviceToHost));
  double sum = 0;
  for (u32 clocks_of_warp : taken)
    sum += clocks_of_warp;
  double mean = sum / taken.size() / STEPS;
  double of_warp = of_lanes ? 32.0 * piece_bytes : 32.0 * sizeof(T);
  std::printf("%zu,%d,%d,%.1f,%.1f\n", sizeof(T), piece_bytes, warps_per_sm,
              of_warp * taken.size() / mean, mean);
  CHECK(cudaFree(clocks));
}

int main() {
  void* in = random_memory(BYTES + FLUSHED);
  std::printf("bytes_per_lane,piece_bytes,warps_per_sm,read_bytes_per_clock,mean_clocks\n");
  for (int piece_bytes : {32, 128, 256, 512, 1024, 2048, 4096})
    for (int warps : {1, 2, 4, 8, 16, 24, 32})
      measure<u32>(in, piece_bytes, warps);
  for (int piece_bytes : {512, 1024, 2048, 4096, 8192, 16384})
    for (int warps : {1, 2, 4, 8, 16, 24, 32})
      measure<uint4>(in, piece_bytes, warps);
  return 0;
}
