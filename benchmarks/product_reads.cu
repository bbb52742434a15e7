// Reads that the blocks of a matrix product share, for benchmarks/microbenchmarks.py, which counts
// the sectors that the L1s and the L2 read.
//
// Block (r, c) of a grid with `side` columns loads `depth` columns of 128 rows of A, which the blocks
// of its row read too, and `depth` rows of 128 columns of B, which those of its column read; waits
// at a barrier, and multiplies for `work` steps; until the width is done. So a row of A has 32 or
// 64 bytes in a round, and one access to DRAM brings what two or one of them read. `round_clocks`
// is how long a round takes in the mean, and `lag_clocks` the standard deviation over the blocks of
// when they begin the middle round: the blocks meet before the first one.
#include <cmath>
#include <vector>

#include "device.cuh"

constexpr u32 THREADS = 256, TILE = 128, WIDTH = 1024, MOST_ROUNDS = WIDTH / 8;
constexpr int WHOLE_SM = 150 * 1024, HALF_SM = 80 * 1024;

template <u32 DEPTH>
__global__ void __launch_bounds__(THREADS)
    products(const float4* a, const float4* b, float* out, u32* meeting, u32* begun, u32 side, u32 work) {
  constexpr u32 LOADS = TILE * DEPTH / 4 / THREADS, ROW = DEPTH / 4, COLUMN = TILE / 4, PITCH = WIDTH / 4;
  __shared__ float4 of_a[TILE * DEPTH / 4], of_b[TILE * DEPTH / 4];
  extern __shared__ u32 unused[];
  u32 thread = threadIdx.x, row = blockIdx.x / side, column = blockIdx.x % side;
  const float4* from_a = a + u64(row * TILE + thread / ROW) * PITCH + thread % ROW;
  const float4* from_b = b + u64(thread / COLUMN) * side * COLUMN + column * COLUMN + thread % COLUMN;
  meet(meeting);
  u32 first = clock_low();
  float sum = thread;
#pragma unroll 1
  for (u32 round = 0; round < WIDTH / DEPTH; ++round) {
    if (thread == 0) begun[blockIdx.x * MOST_ROUNDS + round] = clock_low() - first;
    float4 new_a[LOADS], new_b[LOADS];
#pragma unroll
    for (u32 i = 0; i < LOADS; ++i) new_a[i] = from_a[u64(i * (THREADS / ROW)) * PITCH + round * ROW];
#pragma unroll
    for (u32 i = 0; i < LOADS; ++i)
      new_b[i] = from_b[u64(round * DEPTH + i * (THREADS / COLUMN)) * side * COLUMN];
#pragma unroll
    for (u32 i = 0; i < LOADS; ++i) of_a[thread + i * THREADS] = new_a[i], of_b[thread + i * THREADS] = new_b[i];
    __syncthreads();
#pragma unroll 4
    for (u32 step = 0; step < work; ++step) {
      float4 x = of_a[step % (TILE * DEPTH / 4)], y = of_b[step % (TILE * DEPTH / 4)];
      sum = fmaf(sum, x.x, y.x), sum = fmaf(sum, x.y, y.y);
      sum = fmaf(sum, x.z, y.z), sum = fmaf(sum, x.w, y.w);
    }
    __syncthreads();
  }
  out[blockIdx.x * THREADS + thread] = sum;
}

struct Bench {
  const float4 *a, *b;
  float* out;
  u32 *meeting, *begun;

  template <u32 DEPTH>
  void measure(u32 blocks, u32 side, int bytes, u32 work) {
    CHECK(cudaFuncSetAttribute(products<DEPTH>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CHECK(cudaMemset(meeting, 0, sizeof *meeting));
    products<DEPTH><<<blocks, THREADS, bytes>>>(a, b, out, meeting, begun, side, work);
    finish();
    std::vector<u32> times(blocks * MOST_ROUNDS);
    CHECK(cudaMemcpy(times.data(), begun, times.size() * sizeof(u32), cudaMemcpyDeviceToHost));
    u32 rounds = WIDTH / DEPTH;
    double last = 0, middle = 0, squares = 0;
    for (u32 block = 0; block < blocks; ++block) {
      const u32* of_block = &times[block * MOST_ROUNDS];
      double at = of_block[rounds / 2];
      last += double(of_block[rounds - 1]) / blocks, middle += at / blocks, squares += at * at / blocks;
    }
    std::printf("products,%u,%u,%d,%u,%u,%.0f,%.0f\n", blocks, side, bytes, DEPTH, work, last / (rounds - 1),
                std::sqrt(std::fmax(squares - middle * middle, 0)));
  }
};

int main() {
  u64 words = u64(4096) * WIDTH;
  Bench bench{static_cast<const float4*>(random_memory(words * 4)),
              static_cast<const float4*>(random_memory(words * 4)), device_memory<float>(1 << 20),
              device_memory<u32>(1), device_memory<u32>(1 << 20)};
  std::printf("kernel,blocks,side,shared_bytes,depth,work,round_clocks,lag_clocks\n");
  const u32 grids[][2] = {{16, 4}, {64, 8}, {64, 16}, {128, 16}, {128, 8}, {128, 4}};  // blocks, side
  for (u32 work : {32u, 128u}) {
    for (auto grid : grids) {
      bench.measure<8>(grid[0], grid[1], WHOLE_SM, work);
      bench.measure<16>(grid[0], grid[1], WHOLE_SM, work);
    }
    for (auto grid : {grids[1], grids[3]}) {
      bench.measure<8>(2 * grid[0], grid[1], HALF_SM, work);
      bench.measure<16>(2 * grid[0], grid[1], HALF_SM, work);
    }
  }
  return 0;
}
