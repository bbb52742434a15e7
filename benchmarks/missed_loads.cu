// Loads that miss the L1 and hit the L2, by the lines and sectors of a warp, for
// benchmarks/microbenchmarks.py.
//
// Lane `i` of `warps` warps reads 4 bytes at i / row_lanes * row_stride + i % row_lanes * lane_stride
// of `span` bytes, which each of 8 loads of a trip has to itself. A block of these warps runs on one
// SM, or on each. `clocks` are those of an SM per load, in the median of the SMs.
#include <algorithm>
#include <vector>

#include "device.cuh"

constexpr u32 GROUPS = 8, LANES = 32, MOST_THREADS = 1024;
constexpr u64 BYTES = 16 << 20;  // within the L2

struct Pattern {
  u32 lane_stride, row_lanes, row_stride, span;
};

__global__ void __launch_bounds__(MOST_THREADS)
    missed(const char* memory, Pattern of, u32 trips, u64* starts, u64* ends, u32* result) {
  u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES, sum = 0;
  u64 within = lane / of.row_lanes * of.row_stride + lane % of.row_lanes * of.lane_stride;
  u64 start = clock_of_sm();
#pragma unroll 1
  for (u32 trip = 0; trip < trips; ++trip) {
    u32 values[GROUPS];
    u64 number = (u64(blockIdx.x) * trips + trip) * GROUPS * warps + warp;
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group) {
      u64 place = ((number + group * warps) * of.span & BYTES - 1) + within;
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(values[group]) : "l"(memory + place));
    }
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group) sum ^= values[group];
    __syncwarp();
  }
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  ends[thread] = clock_of_sm() + (sum == 1);  // behind the last load
  starts[thread] = start;
  result[thread] = sum;
}

int main() {
  auto* memory = static_cast<const char*>(random_memory(BYTES + 65536));
  int sms = multiprocessors();
  u64* times = device_memory<u64>(2 * MOST_THREADS * sms);
  u32* result = device_memory<u32>(MOST_THREADS * sms);
  const Pattern patterns[] = {
      {4, 32, 0, 128},    {0, 32, 0, 128},    {0, 16, 128, 256}, {0, 16, 1024, 2048},
      {4, 16, 128, 256},  {4, 16, 160, 256},  {0, 8, 128, 512},  {0, 8, 512, 2048},
      {4, 8, 128, 512},   {0, 4, 128, 1024},  {0, 4, 512, 4096}, {0, 2, 128, 2048},
      {4, 2, 128, 2048},  {128, 32, 0, 4096}, {132, 32, 0, 8192}, {512, 32, 0, 16384},
      {32, 32, 0, 1024},  {64, 32, 0, 2048},  {8, 32, 0, 256},   {16, 32, 0, 512}};
  std::printf("kernel,blocks,warps,lane_stride,row_lanes,row_stride,span,trips,clocks\n");
  for (int blocks : {1, sms})
    for (u32 warps : {32u, 8u})
      for (const Pattern& of : patterns) {
        u32 threads = warps * LANES;
        u32 trips = u32(std::min<u64>(64, BYTES / (u64(of.span) * GROUPS * warps)));
        if (blocks > 1)
          trips = 16;
        for (int again = 0; again < 3; ++again) {  // the L2 has the bytes then
          missed<<<blocks, threads>>>(memory, of, trips, times, times + blocks * threads, result);
          finish();
        }
        std::vector<u64> found(2 * blocks * threads);
        CHECK(cudaMemcpy(found.data(), times, found.size() * sizeof(u64), cudaMemcpyDeviceToHost));
        std::vector<double> clocks;
        for (int block = 0; block < blocks; ++block) {
          auto start = found.begin() + block * threads, end = start + blocks * threads;
          u64 lasted = *std::max_element(end, end + threads) -
                       *std::min_element(start, start + threads);
          clocks.push_back(double(lasted) / (u64(trips) * GROUPS * warps));
        }
        std::sort(clocks.begin(), clocks.end());
        std::printf("missed,%d,%u,%u,%u,%u,%u,%u,%.3f\n", blocks, warps, of.lane_stride,
                    of.row_lanes, of.row_stride, of.span, trips, clocks[blocks / 2]);
      }
  return 0;
}
