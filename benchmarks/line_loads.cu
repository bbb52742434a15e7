// Loads of global memory that hit the L1, by the lines and the banks that the lanes of a warp read,
// for benchmarks/microbenchmarks.py.
//
// Warps of a block load over and over, lane `i` `bytes` at `i * stride`, all from the same places.
// `lines` are those of 128 bytes that a warp reads, `words` the most distinct words of a bank, of 32
// banks of 4 bytes; `loads` are those of all warps. `clocks` are those of the SM per load, behind a
// first round that brings the lines.
#include <algorithm>
#include <set>
#include <vector>

#include "device.cuh"

constexpr int GROUPS = 16, TRIPS = 64, THREADS = 1024, LANES = 32;

template <class T>
__device__ __forceinline__ u32 loaded(const char* place) {
  T value = *reinterpret_cast<const T*>(place);
  if constexpr (sizeof(T) == 16)
    return value.x ^ value.y ^ value.z ^ value.w;
  else
    return u32(value) ^ u32(u64(value) >> 32);
}

// `zero` keeps the compiler from moving loads out of the loop.
template <class T>
__global__ void timed(const char* memory, u32 stride, u32 zero, u64* starts, u64* ends, u32* result) {
  const char* own = memory + threadIdx.x % LANES * stride;
  u32 sum = loaded<T>(own);
  __syncthreads();
  u64 start = clock_of_sm();
#pragma unroll 1
  for (u32 trip = 1; trip <= TRIPS; ++trip) {
    u32 values[GROUPS];
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group)
      values[group] = loaded<T>(own + zero * (trip * GROUPS + group));
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group) sum += values[group] * (group + trip);
  }
  ends[threadIdx.x] = clock_of_sm();
  starts[threadIdx.x] = start;
  result[threadIdx.x] = sum;
}

template <class T>
void measure(const std::vector<u32>& strides, const char* memory, u64* times, u32* result) {
  for (u32 stride : strides) {
    std::set<u32> lines, words;
    for (u32 lane = 0; lane < LANES; ++lane)
      for (u32 byte = 0; byte < sizeof(T); ++byte) {
        lines.insert((lane * stride + byte) / 128);
        words.insert((lane * stride + byte) / 4);
      }
    int of_bank[32] = {};
    for (u32 word : words) ++of_bank[word % 32];
    timed<T><<<1, THREADS>>>(memory, stride, 0, times, times + THREADS, result);
    finish();
    std::vector<u64> found(2 * THREADS);
    CHECK(cudaMemcpy(found.data(), times, found.size() * sizeof(u64), cudaMemcpyDeviceToHost));
    u64 start = *std::min_element(found.begin(), found.begin() + THREADS);
    u64 end = *std::max_element(found.begin() + THREADS, found.end());
    int loads = TRIPS * GROUPS * THREADS / LANES;
    std::printf("timed,%zu,%u,%zu,%d,%d,%.3f\n", sizeof(T), stride, lines.size(),
                *std::max_element(of_bank, of_bank + 32), loads + THREADS / LANES,
                double(end - start) / loads);
  }
}

int main() {
  const char* memory = static_cast<const char*>(random_memory(1 << 20));
  u64* times = device_memory<u64>(2 * THREADS);
  u32* result = device_memory<u32>(THREADS);
  std::printf("kernel,bytes,stride,lines,words,loads,clocks\n");
  measure<unsigned short>({0, 2, 4, 6, 8, 10, 14, 18, 22, 34, 36, 68, 128, 130, 132, 260}, memory,
                          times, result);
  measure<u32>({0,  4,  8,  12, 16,  20,  24,  28,  32,  36,  40,  44,  48,  52,  60,
                64, 68, 72, 80, 84,  96,  100, 108, 124, 128, 132, 136, 140, 144, 160,
                192, 196, 256, 260, 264, 272, 384, 388, 512, 516, 520, 544, 1024, 1028},
               memory, times, result);
  measure<u64>({0, 8, 16, 24, 32, 40, 56, 72, 104, 128, 136, 144, 264, 272, 520}, memory, times, result);
  measure<uint4>({0, 16, 32, 48, 64, 80, 112, 128, 144, 160, 192, 272, 528}, memory, times, result);
}
