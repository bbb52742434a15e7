// Reads of tiles by several blocks that wait for one another or not, for
// benchmarks/microbenchmarks.py, which counts the sectors that the L2 reads.
//
// In each of its trips a block loads a tile of 4 KiB, in rows of `row_bytes` that lie as far apart
// as those of a matrix. Groups of `readers` blocks load the same tiles: neighbours where `adjacent`
// is 1, else blocks that lie as far apart as there are groups. With `both`, they load a second tile
// in each trip: every sixteenth block loads the same, as the blocks of a column of a product do. The
// threads of a block wait for one another before and after they store tiles in shared memory, unless
// `barrier` is 0, and then multiply for `work` steps.
#include "device.cuh"

constexpr int THREADS = 256;
constexpr u32 COLUMNS = 16;
constexpr u64 BYTES = 3ull << 30;

struct Reading {
  u32 row_bytes, readers, groups, adjacent, both, work, trips;
};

template <bool BARRIER>
__global__ void __launch_bounds__(THREADS) rows(const float4* in, Reading reading, float* out) {
  extern __shared__ float4 tile[];
  float sum = threadIdx.x;
  u32 group = reading.adjacent ? blockIdx.x / reading.readers : blockIdx.x % reading.groups;
  u32 lanes = reading.row_bytes / 16, row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const float4* own = in + row * lanes * reading.trips + lane;
  const float4* first = own + u64(group) * reading.trips * THREADS;
  const float4* second =
      own + u64(reading.groups + blockIdx.x % COLUMNS) * reading.trips * THREADS;
  for (u32 trip = 0; trip < reading.trips; ++trip) {
    float4 value = first[trip * lanes], other_value = {0, 0, 0, 0};
    if (reading.both)
      other_value = second[trip * lanes];
    if (BARRIER)
      __syncthreads();
    tile[threadIdx.x] = value;
    if (reading.both)
      tile[threadIdx.x + THREADS] = other_value;
    if (BARRIER)
      __syncthreads();
#pragma unroll 4
    for (u32 step = 0; step < reading.work; ++step) {
      float4 other = tile[BARRIER ? (threadIdx.x + step) & (THREADS - 1) : threadIdx.x];
      sum = fmaf(sum, other.x, other.y);
      sum = fmaf(sum, other.z, other.w);
    }
  }
  out[blockIdx.x % 4096 * THREADS + threadIdx.x] = sum;
}

const float4* in;
float* out;

struct Case {
  int per_sm, waves;
  u32 trips, work;

  template <bool BARRIER = true>
  void run(u32 row_bytes, u32 readers, u32 adjacent, u32 both = 0) const {
    u32 blocks = multiprocessors() * per_sm * waves, groups = (blocks + readers - 1) / readers;
    Reading reading{row_bytes, readers, groups, adjacent, both, work, trips};
    if (u64(groups + COLUMNS) * trips * THREADS * sizeof(float4) > BYTES)
      return;
    int shared = 200 * 1024 / per_sm - 1024;
    CHECK(cudaFuncSetAttribute(rows<BARRIER>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    rows<BARRIER><<<blocks, THREADS, shared>>>(in, reading, out);
    finish();
    std::printf("rows,%d,%d,%u,%u,%u,%u,%u,%u,%d\n", per_sm, waves, trips, work, row_bytes, readers,
                adjacent, both, int(BARRIER));
  }
};

int main() {
  in = static_cast<const float4*>(random_memory(BYTES));
  out = device_memory<float>(4096 * THREADS);
  u32 sms = multiprocessors();
  std::printf("kernel,blocks_per_sm,waves,trips,work,row_bytes,readers,adjacent,both,barrier\n");
  for (u32 trips : {128, 512, 32})
    for (int per_sm : {1, 2, 4, 8})
      for (u32 work : {16, 64, 256}) {
        Case one{per_sm, 1, trips, work};
        for (u32 row_bytes : {32, 128}) {
          one.run(row_bytes, 16, 1);
          one.run(row_bytes, 16, 0);
          one.run(row_bytes, 16, 1, 1);
        }
        one.run(128, 4, 1);
        one.run(128, sms, 1);
        one.run(128, sms, 0);
        if (per_sm > 1)
          one.run(128, sms * per_sm, 1);
        one.run<false>(128, 16, 1);
        one.run<false>(128, sms * per_sm, 1);
        if (trips != 128 || work == 64)
          continue;
        for (int waves : {4, 16}) {
          if (waves * per_sm > 32)
            continue;
          Case more{per_sm, waves, trips, work};
          more.run(128, 16, 1);
          more.run(128, 16, 1, 1);
          more.run(128, sms, 0);
          more.run<false>(128, 16, 1);
        }
      }
  return 0;
}
