// Reads of asynchronous copies that blocks share, for benchmarks/microbenchmarks.py, which counts the
// requests and sectors that the L1s and the L2 read.
//
// Each `readers` blocks copy the same rows of `chunks` times 16 bytes, 4 KiB in a round, and wait for
// them at a barrier. Row n goes to chunk `first + n * pitch` of shared memory, so with a pitch of 8 all
// rows lie alike in its lines of 128 bytes. Those with `asynchronous` 0 go through registers.
#include "device.cuh"

constexpr u32 THREADS = 256, WIDTH = 256;  // 16 bytes each
constexpr int WHOLE_SM = 150 * 1024;

__global__ void __launch_bounds__(THREADS) copied(const int4* data, int4* out, u32* meeting, u32 readers, u32 chunks,
                                                  u32 pitch, u32 first, bool asynchronous) {
  extern __shared__ int4 rows[];
  u32 thread = threadIdx.x, row = thread / chunks, of_row = THREADS / chunks;
  const int4* from = data + u64(blockIdx.x / readers * of_row + row) * WIDTH + thread % chunks;
  int4* to = rows + first + row * pitch + thread % chunks;
  if (thread == 0) {
    atomicAdd(meeting, 1);
    while (*(volatile u32*)meeting < gridDim.x) {
    }
  }
  __syncthreads();
  int4 sum = make_int4(0, 0, 0, 0);
#pragma unroll 1
  for (u32 round = 0; round < WIDTH / chunks; ++round) {
    if (asynchronous) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))),
                   "l"(from + round * chunks)
                   : "memory");
      asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
      *to = __ldcg(from + round * chunks);
    }
    __syncthreads();
    int4 other = rows[first + (of_row - 1 - row) * pitch + thread % chunks];
    sum.x += other.x, sum.y ^= other.y, sum.z += other.z, sum.w ^= other.w;
    __syncthreads();
  }
  out[blockIdx.x * THREADS + thread] = sum;
}

int main() {
  constexpr u32 BLOCKS = 64;
  auto data = static_cast<const int4*>(random_memory(u64(BLOCKS) * THREADS * WIDTH * sizeof(int4)));
  auto out = device_memory<int4>(BLOCKS * THREADS);
  auto meeting = device_memory<u32>(1);
  CHECK(cudaFuncSetAttribute(copied, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
  std::printf("kernel,blocks,readers,chunks,pitch,first,asynchronous\n");
  auto measure = [&](u32 blocks, u32 readers, u32 chunks, u32 pitch, u32 first, bool asynchronous) {
    CHECK(cudaMemset(meeting, 0, sizeof *meeting));
    copied<<<blocks, THREADS, WHOLE_SM>>>(data, out, meeting, readers, chunks, pitch, first, asynchronous);
    finish();
    std::printf("copied,%u,%u,%u,%u,%u,%d\n", blocks, readers, chunks, pitch, first, asynchronous);
  };
  for (u32 readers : {4u, 8u}) {
    for (u32 chunks : {2u, 4u, 8u}) {
      measure(64, readers, chunks, chunks, 0, false);
      measure(64, readers, chunks, chunks + 1, 0, true);
      for (u32 first = 0; first < 8; ++first) measure(64, readers, chunks, 8, first, true);
    }
  }
  for (u32 readers : {1u, 2u, 16u}) measure(64, readers, 4, 5, 0, true);
  for (u32 readers : {4u, 8u}) measure(32, readers, 4, 5, 0, true);
  return 0;
}
