// Reads of one sector by SMs of a GPC at chosen distances, for benchmarks/microbenchmarks.py.
//
// The blocks of a cluster, one on each SM, meet at a barrier of the cluster in each round. Then the
// block of turn r reads what the round names, LEAD + r * `delay` clocks of its own SM later. So the
// distances are exact but for the barrier's own skew. `state` is where it is before: 0 in DRAM, 1
// in the readers' partition of the L2, as a block of the cluster has read it; 1 + c where one of
// cluster c has. `near` is 1 for two SMs of a TPC. The columns behind the SMs are quantiles of the
// clocks that the first and the last reader wait.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device.cuh"

constexpr int SIZE = 8, CLUSTERS = 8, ROUNDS = 512, WHOLE_SM_BYTES = 180 * 1024, LEAD = 400;
constexpr u64 BYTES = 3ull << 30;

struct Reading {
  int readers, delay, state, sectors, period;
  int turn[SIZE];  // by rank: -1 for one that takes no part
  u64 base;        // in bytes
};

__device__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ u32 load(const u32* from) {
  u32 value;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// A line of each round's own 4 KiB, so that a round does not read what another one has brought.
__device__ const u32* place(const u32* data, const Reading& reading, int round) {
  u64 line = hashed(7, round) % 32;
  return data + (reading.base + u64(round) * 4096 + line * 128) / 4;
}

__global__ void __cluster_dims__(SIZE, 1, 1)
    joins(const u32* data, Reading reading, int* flag, u32* clocks, u32* sms, u32* sink) {
  __shared__ volatile u32 kept[32];
  int rank = blockIdx.x % SIZE, cluster = blockIdx.x / SIZE, lane = threadIdx.x;
  u32 sum = 0;
  if (lane == 0)
    sms[blockIdx.x] = multiprocessor();
  bool reads = lane < reading.sectors;
  if (reading.state > 0 && cluster == reading.state - 1 && rank == 0) {
    for (int round = 0; round < ROUNDS; ++round)
      if (reads)
        sum += load(place(data, reading, round) + lane * 8);
    if (sum == 0x12345677u)
      *sink = sum;
    __syncwarp();
    __threadfence();
    if (lane == 0)
      atomicExch(flag, 1);
  }
  if (cluster == 0) {
    if (reading.state > 1 && rank == 0 && lane == 0)
      while (atomicAdd(flag, 0) == 0)
        __nanosleep(10000);
    __syncwarp();
    int turn = reading.turn[rank];
    for (int round = 0; round < ROUNDS; ++round) {
      meet();
      u64 begin = clock_of_sm();
      if (turn >= 0) {
        u64 at = begin + LEAD + turn * reading.delay;
        const u32* from = place(data, reading, round) + lane * 8;
        while (clock_of_sm() < at) {
        }
        u32 before = clock_low();
        if (reads)
          sum += load(from);
        __syncwarp();
        kept[lane] = sum;  // waits for the data
        u32 after = clock_low();
        if (lane == 0)
          clocks[turn * ROUNDS + round] = after - before;
      }
      while (clock_of_sm() < begin + reading.period) {
      }
    }
  }
  if (sum == 0x12345678u)
    *sink = sum;
}

struct Bench {
  const u32* data;
  int* flag;
  u32 *clocks, *sms, *sink;
  u64 used = 0;

  void run(int readers, int delay, int state, int sectors, bool near) {
    int period = LEAD + std::max(readers - 1, 1) * delay + 2500;
    Reading reading{readers, delay, state, sectors, period, {}, used};
    used += u64(ROUNDS) * 4096;
    if (used > BYTES)
      std::exit(1);
    // Ranks 0 and 1 share a TPC where their SMs are 2k and 2k + 1: the table has the SMs.
    std::fill(reading.turn, reading.turn + SIZE, -1);
    if (readers == 2)
      reading.turn[0] = 0, reading.turn[near ? 1 : 5] = 1;
    else
      for (int i = 0; i < readers; ++i)
        reading.turn[i] = i;
    CHECK(cudaMemset(flag, 0, sizeof *flag));
    joins<<<SIZE * CLUSTERS, 32, WHOLE_SM_BYTES>>>(data, reading, flag, clocks, sms, sink);
    finish();
    std::vector<u32> took(readers * ROUNDS), at(SIZE * CLUSTERS);
    CHECK(cudaMemcpy(took.data(), clocks, took.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(at.data(), sms, at.size() * 4, cudaMemcpyDeviceToHost));
    std::printf("joins,%d,%d,%d,%d,%d,%u,%u", readers, delay, state, sectors, int(near), at[0],
                at[near ? 1 : 5]);
    for (int i : {0, readers - 1}) {
      std::vector<u32> one(took.begin() + i * ROUNDS, took.begin() + (i + 1) * ROUNDS);
      std::sort(one.begin(), one.end());
      for (double q : {0.1, 0.25, 0.5, 0.75, 0.9})
        std::printf(",%u", one[int(q * ROUNDS)]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
};

int main() {
  Bench bench{};
  bench.data = static_cast<const u32*>(random_memory(BYTES));
  bench.flag = device_memory<int>(1);
  bench.clocks = device_memory<u32>(SIZE * ROUNDS);
  bench.sms = device_memory<u32>(SIZE * CLUSTERS);
  bench.sink = device_memory<u32>(1);
  CHECK(cudaFuncSetAttribute(joins, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM_BYTES));
  std::printf("kernel,readers,delay,state,sectors,near,first_sm,other_sm,first_p10,first_p25,"
              "first_p50,first_p75,first_p90,last_p10,last_p25,last_p50,last_p75,last_p90\n");
  std::vector<int> delays{0,   25,  50,  75,  100, 125, 150, 175, 200, 250,
                          300, 350, 400, 450, 500, 550, 600, 700, 800, 1000};
  for (int state : {1, 0})
    for (int delay : delays)
      for (bool near : {false, true})
        bench.run(2, delay, state, 1, near);
  for (int state : {1, 0})
    for (int delay : delays)
      if (delay % 50 == 0)
        bench.run(2, delay, state, 16, false);
  for (int state : {2, 3, 4, 5, 6, 7, 8})
    for (int delay : {0, 100, 200, 300})
      bench.run(2, delay, state, 1, false);
  for (int state : {1, 0})
    for (int readers : {3, 4, 5, 8})
      for (int delay : {0, 30, 60, 100, 150, 250})
        bench.run(readers, delay, state, 1, false);
  return 0;
}
