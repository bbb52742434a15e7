// Reads of tiles by several blocks of grids of one and of more waves, for
// benchmarks/microbenchmarks.py, which counts the sectors that the L2 reads.
//
// Groups of `readers` blocks load the same tiles of 4 KiB, one after the other: neighbours where
// `adjacent` is 1, else blocks that lie as far apart as there are groups. The threads of a block
// wait for one another before and after they store a tile in shared memory, unless `barrier` is 0,
// and multiply for `work` steps before they load the next one. What all groups read fits the L2.
#include "device.cuh"

constexpr int THREADS = 256, TRIPS = 32;
constexpr u32 ARRAYS = 128;  // tiles of 4 KiB x TRIPS each: 16 MiB

template <bool BARRIER>
__global__ void __launch_bounds__(THREADS)
    waves(const float4* in, u32 readers, u32 groups, u32 adjacent, u32 arrays, u32 work,
          float* out) {
  extern __shared__ float4 tile[];
  float sum = threadIdx.x;
  u32 group = adjacent ? blockIdx.x / readers : blockIdx.x % groups;
  const float4* own = in + u64(group % arrays) * TRIPS * THREADS;
  for (u32 trip = 0; trip < TRIPS; ++trip) {
    float4 value = own[trip * THREADS + threadIdx.x];
    if (BARRIER)
      __syncthreads();
    tile[threadIdx.x] = value;
    if (BARRIER)
      __syncthreads();
#pragma unroll 4
    for (u32 step = 0; step < work; ++step) {
      float4 other = tile[BARRIER ? (threadIdx.x + step) & (THREADS - 1) : threadIdx.x];
      sum = fmaf(sum, other.x, other.y);
    }
  }
  out[blockIdx.x % 4096 * THREADS + threadIdx.x] = sum;
}

const float4* in;
float* out;

template <bool BARRIER>
void run(int per_sm, int count, u32 readers, u32 adjacent, u32 work) {
  u32 blocks = multiprocessors() * per_sm * count, groups = (blocks + readers - 1) / readers;
  u32 resident = (multiprocessors() * per_sm + readers - 1) / readers;
  u32 arrays = resident > ARRAYS ? resident : ARRAYS;
  int shared = 200 * 1024 / per_sm - 1024;
  CHECK(cudaFuncSetAttribute(waves<BARRIER>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  waves<BARRIER><<<blocks, THREADS, shared>>>(in, readers, groups, adjacent, arrays, work, out);
  finish();
  std::printf("waves,%d,%d,%u,%u,%u,%d\n", per_sm, count, readers, adjacent, work, int(BARRIER));
}

int main() {
  in = static_cast<const float4*>(random_memory(64ull << 20));
  out = device_memory<float>(4096 * THREADS);
  std::printf("kernel,blocks_per_sm,waves,readers,adjacent,work,barrier\n");
  for (int per_sm : {1, 2, 4, 8})
    for (int count : {1, 4, 16})
      for (u32 readers : {4, 32, 132})
        for (u32 adjacent : {1, 0}) {
          run<true>(per_sm, count, readers, adjacent, 16);
          run<true>(per_sm, count, readers, adjacent, 64);
          run<false>(per_sm, count, readers, adjacent, 16);
        }
  return 0;
}
