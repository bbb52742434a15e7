// Loads of global memory that hit the L1, by its lines and banks that the lanes of a warp read, for
// benchmarks/microbenchmarks.py.
//
// Lane `i` of a warp reads `bytes` at `offset + i / row_lanes * row_stride + i % row_lanes *
// lane_stride`, or, where there is a `table`, at a random one of its elements, which differs between
// warps. To that `warp_stride` is added for each warp, and `load_stride` for each of the 8 loads of a
// trip. A first trip, which is not timed, brings the lines. One block runs.
//
// `lines` are those of 128 bytes that a warp reads, `sectors` those of 32, and `words` the most
// distinct words of a bank, of 32 banks of 4 bytes: the mean of all loads of a trip. `loads` are those
// of all warps. `clocks` are those of an SM per load.
#include <algorithm>
#include <set>
#include <vector>

#include "device.cuh"

constexpr u32 GROUPS = 8, TRIPS = 64, LANES = 32, LINE = 128, MOST_THREADS = 1024;
constexpr u64 BYTES = 1 << 24;

struct Pattern {
  u32 bytes, lane_stride, row_lanes, row_stride, offset, table;
  u32 warps, warp_stride, load_stride;
};

__host__ __device__ __forceinline__ u32 place_of(const Pattern& of, u32 thread) {
  u32 lane = thread % LANES, warp = thread / LANES;
  u32 within = lane / of.row_lanes * of.row_stride + lane % of.row_lanes * of.lane_stride;
  if (of.table) within = hashed(thread, of.table) % (of.table / of.bytes) * of.bytes;
  return of.offset + warp * of.warp_stride + within;
}

__device__ __forceinline__ void load(u32 (&values)[1], const char* place, unsigned short) {
  unsigned short value;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(place));
  values[0] = value;
}

__device__ __forceinline__ void load(u32 (&values)[1], const char* place, u32) {
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(values[0]) : "l"(place));
}

__device__ __forceinline__ void load(u32 (&values)[2], const char* place, uint2) {
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(values[0]), "=r"(values[1]) : "l"(place));
}

__device__ __forceinline__ void load(u32 (&values)[4], const char* place, uint4) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "l"(place));
}

// The pointers are all known before the loop, and the compiler does not know which are equal: beside
// the loads there is half an instruction per load.
template <class T>
__global__ void timed(const char* memory, Pattern of, u64* starts, u64* ends, u32* result) {
  constexpr u32 WORDS = sizeof(T) / 4 ? sizeof(T) / 4 : 1;
  u32 thread = threadIdx.x, sum = 0;
  const char* own[GROUPS];
#pragma unroll
  for (u32 group = 0; group < GROUPS; ++group)
    own[group] = memory + place_of(of, thread) + group * of.load_stride;
  auto trip = [&] {
    u32 values[GROUPS][WORDS];
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group) load(values[group], own[group], T());
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group)
#pragma unroll
      for (u32 word = 0; word < WORDS; ++word) sum ^= values[group][word];
    __syncwarp();
  };
  trip();
  __syncthreads();
  u64 start = clock_of_sm();
#pragma unroll 1
  for (u32 count = 0; count < TRIPS; ++count) trip();
  ends[thread] = clock_of_sm() + (sum == 1);  // behind the last load
  starts[thread] = start;
  result[thread] = sum;
}

template <class T>
void measure_as(const Pattern& of, const char* memory, u64* times, u32* result) {
  u32 threads = of.warps * LANES;
  double lines = 0, sectors = 0, words = 0;
  for (u32 warp = 0; warp < of.warps; ++warp)
    for (u32 group = 0; group < GROUPS; ++group) {
      std::set<u32> distinct[3];
      for (u32 lane = 0; lane < LANES; ++lane)
        for (u32 byte = 0; byte < of.bytes; ++byte) {
          u32 place = place_of(of, warp * LANES + lane) + group * of.load_stride + byte;
          distinct[0].insert(place / LINE);
          distinct[1].insert(place / 32);
          distinct[2].insert(place / 4);
        }
      int of_bank[32] = {};
      for (u32 word : distinct[2]) ++of_bank[word % 32];
      lines += distinct[0].size();
      sectors += distinct[1].size();
      words += *std::max_element(of_bank, of_bank + 32);
    }
  timed<T><<<1, threads>>>(memory, of, times, times + threads, result);
  finish();
  std::vector<u64> found(2 * threads);
  CHECK(cudaMemcpy(found.data(), times, found.size() * sizeof(u64), cudaMemcpyDeviceToHost));
  u64 start = *std::min_element(found.begin(), found.begin() + threads);
  u64 end = *std::max_element(found.begin() + threads, found.end());
  u32 each = of.warps * GROUPS;
  std::printf("timed,%u,%u,%u,%u,%u,%u,%u,%u,%u,%.4f,%.4f,%.4f,%u,%.3f\n", of.bytes, of.lane_stride,
              of.row_lanes, of.row_stride, of.offset, of.table, of.warps, of.warp_stride,
              of.load_stride, lines / each, sectors / each, words / each, each * (TRIPS + 1),
              double(end - start) / (each * TRIPS));
}

int main() {
  const char* memory = static_cast<const char*>(random_memory(BYTES));
  u64* times = device_memory<u64>(2 * MOST_THREADS);
  u32* result = device_memory<u32>(MOST_THREADS);
  std::printf("kernel,bytes,lane_stride,row_lanes,row_stride,offset,table,warps,warp_stride,"
              "load_stride,lines,sectors,words,loads,clocks\n");
  auto measure = [&](const Pattern& of) {
    if (of.bytes == 2)
      measure_as<unsigned short>(of, memory, times, result);
    else if (of.bytes == 4)
      measure_as<u32>(of, memory, times, result);
    else if (of.bytes == 8)
      measure_as<uint2>(of, memory, times, result);
    else
      measure_as<uint4>(of, memory, times, result);
  };
  auto rows = [&](u32 bytes, u32 lane_stride, u32 lanes, u32 row_stride, u32 offset = 0) {
    measure({bytes, lane_stride, lanes, row_stride, offset, 0, 32, 0, 0});
  };

  // A stride between lanes.
  for (u32 stride : {0, 2, 4, 6, 8, 10, 14, 18, 22, 34, 36, 68, 128, 130, 132, 260})
    rows(2, stride, 32, 0);
  for (u32 stride : {0,  4,  8,  12, 16,  20,  24,  28,  32,  36,  40,  44,  48,  52,  60,
                     64, 68, 72, 80, 84,  96,  100, 108, 124, 128, 132, 136, 140, 144, 160,
                     192, 196, 256, 260, 264, 272, 384, 388, 512, 516, 520, 544, 1024, 1028,
                     2048, 2052, 4096, 4100, 4128, 4224})
    rows(4, stride, 32, 0);
  for (u32 stride : {0, 8, 16, 24, 32, 40, 56, 72, 104, 128, 136, 144, 264, 272, 520})
    rows(8, stride, 32, 0);
  for (u32 stride : {0, 16, 32, 48, 64, 80, 112, 128, 144, 160, 192, 272, 528})
    rows(16, stride, 32, 0);
  // Neighbouring words, at an offset from the beginning of a line.
  for (u32 offset : {2, 30, 32, 64, 66, 96, 126}) rows(2, 2, 32, 0, offset);
  for (u32 offset = 4; offset < LINE; offset += 4) rows(4, 4, 32, 0, offset);
  for (u32 offset : {8, 16, 24, 32, 48, 64, 96, 104, 120}) rows(8, 8, 32, 0, offset);
  for (u32 offset = 16; offset < LINE; offset += 16) rows(16, 16, 32, 0, offset);
  // Two lines so far apart: half of each, different banks.
  for (u32 apart : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,  14,  15, 16,
                    20, 24, 28, 31, 32, 48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256,
                    257, 511, 512, 1024, 1025, 1026, 1027, 2048, 2049, 2050, 2051, 4096,
                    4097, 4098, 4099, 8192, 8193, 8194, 8195})
    rows(4, 4, 16, 64 + LINE * apart);
  // The second half of a line and the first one of another; whole lines of other banks each.
  for (u32 apart : {1, 2, 4, 8, 16, 64}) rows(4, 4, 16, LINE * apart - 64, 64);
  // Four, eight and sixteen lines so far apart.
  for (u32 apart : {1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096})
    rows(4, 4, 8, 32 + LINE * apart);
  for (u32 apart : {1, 2, 3, 4, 5, 8, 16, 32}) {
    rows(4, 4, 4, 16 + LINE * apart);
    rows(4, 4, 2, 8 + LINE * apart);
  }
  // Lines of which each is read in one word, by all lanes or by some: equal and different banks.
  for (u32 offset : {4, 64, 124}) rows(4, 0, 32, 0, offset);
  for (u32 lanes : {1, 2, 4, 8, 11, 16})
    for (u32 stride : {128, 132, 260, 516}) rows(4, 0, lanes, stride);
  // Random elements of a table.
  for (u32 table = 128; table <= 1 << 17; table *= 2)
    measure({4, 0, 1, 0, 0, table, 32, 0, 0});
  for (u32 table : {1 << 10, 1 << 13, 1 << 16}) {
    measure({2, 0, 1, 0, 0, table, 32, 0, 0});
    measure({8, 0, 1, 0, 0, table, 32, 0, 0});
    measure({16, 0, 1, 0, 0, table, 32, 0, 0});
  }
  // Fewer warps; different places of the warps, and of the loads of a warp.
  for (u32 warps : {4, 8, 16})
    for (u32 offset : {0, 4, 32, 64}) measure({4, 4, 32, 0, offset, 0, warps, 0, 0});
  for (u32 offset : {0, 4, 32, 64}) {
    measure({4, 4, 32, 0, offset, 0, 32, 128, 0});
    measure({4, 4, 32, 0, offset, 0, 32, 0, 128});
    measure({4, 4, 32, 0, offset, 0, 32, 128, 4096});
    measure({4, 4, 32, 0, offset, 0, 32, 128, 4});
  }
}
