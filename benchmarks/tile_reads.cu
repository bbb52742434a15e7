// Reads of tiles by several blocks with work in between, for benchmarks/microbenchmarks.py, which
// counts the sectors that the L2 reads.
//
// Each group of `readers` neighbouring blocks loads the same tiles of 8 KiB, one after the other.
// The threads of a block wait for one another before and after they store a tile in shared memory,
// and multiply for `work` steps before they load the next one.
#include "device.cuh"

constexpr int THREADS = 256, TILE = 2 * THREADS;  // of float4
constexpr u32 TRIPS = 64;

__global__ void __launch_bounds__(THREADS)
    tiles(const float4* in, u32 readers, u32 work, u32 trips, float* out) {
  __shared__ float4 tile[TILE];
  float sum = threadIdx.x;
  const float4* own = in + u64(blockIdx.x / readers) * trips * TILE;
  for (u32 trip = 0; trip < trips; ++trip) {
    float4 first = own[trip * TILE + threadIdx.x];
    float4 second = own[trip * TILE + THREADS + threadIdx.x];
    __syncthreads();
    tile[threadIdx.x] = first;
    tile[threadIdx.x + THREADS] = second;
    __syncthreads();
#pragma unroll 4
    for (u32 step = 0; step < work; ++step) {
      float4 value = tile[(threadIdx.x + step) & (TILE - 1)];
      sum = fmaf(sum, value.x, value.y);
    }
  }
  out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

int main() {
  const float4* in = static_cast<const float4*>(random_memory(512ull << 20));
  float* out = device_memory<float>(16 << 20);
  std::printf("kernel,blocks_per_sm,readers,work,trips\n");
  for (int per_sm : {1, 4})
    for (u32 readers : {2, 4, 12, 33, 132})
      for (u32 work : {0, 16, 64, 256}) {
        tiles<<<multiprocessors() * per_sm, THREADS>>>(in, readers, work, TRIPS, out);
        finish();
        std::printf("tiles,%d,%u,%u,%u\n", per_sm, readers, work, TRIPS);
      }
  return 0;
}
