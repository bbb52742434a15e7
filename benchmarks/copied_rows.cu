// Reads of asynchronous copies that blocks share, for benchmarks/microbenchmarks.py, which counts the
// requests and sectors that the L1s and the L2 read.
//
// Each `readers` blocks copy the same rows of `chunks` times 16 bytes, 4 KiB in a round, and wait for
// them at a barrier. Row n goes to chunk `first + n * pitch` of shared memory, so with a pitch of 8 all
// rows lie alike in its lines of 128 bytes. Those with `asynchronous` 0 go through registers.
//
// `halves`: eight blocks load from the same rows, 64 bytes of each in a round. `by` says who reads what:
// 0, all the first half of the same line; 1, every other block the second half; 2, every other block
// the first half of another line; 3, half of the warps of each block the second half; 4, half of the
// warps of each block the first half of another line. `turns`: the same eight blocks, of a warp, load both
// halves of 64 lines in a round, first those of so many lines and then the others.
#include "device.cuh"

constexpr u32 THREADS = 256, WIDTH = 256;  // 16 bytes each
constexpr int WHOLE_SM = 150 * 1024;

__device__ void add(int4& sum, int4 other) {
  sum.x += other.x, sum.y ^= other.y, sum.z += other.z, sum.w ^= other.w;
}

__global__ void __launch_bounds__(THREADS) copied(const int4* data, int4* out, u32* meeting, u32 readers, u32 chunks,
                                                  u32 pitch, u32 first, bool asynchronous) {
  extern __shared__ int4 rows[];
  u32 thread = threadIdx.x, row = thread / chunks, of_row = THREADS / chunks;
  const int4* from = data + u64(blockIdx.x / readers * of_row + row) * WIDTH + thread % chunks;
  int4* to = rows + first + row * pitch + thread % chunks;
  meet(meeting);
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
    add(sum, rows[first + (of_row - 1 - row) * pitch + thread % chunks]);
    __syncthreads();
  }
  out[blockIdx.x * THREADS + thread] = sum;
}

__global__ void __launch_bounds__(THREADS) halves(const int4* data, int4* out, u32* meeting, u32 by) {
  constexpr u32 READERS = 8, LINE = 8, ROUNDS = WIDTH / LINE / 2;
  extern __shared__ int4 rows[];
  u32 thread = threadIdx.x, other = by <= 2 ? blockIdx.x % 2 : thread / (THREADS / 2);
  u32 row = by <= 2 ? thread / 4 : thread % (THREADS / 2) / 4, further = other * (by % 2 ? 4 : by ? ROUNDS * LINE : 0);
  const int4* from = data + u64(blockIdx.x / READERS * (THREADS / 4) + row) * WIDTH + further + thread % 4;
  meet(meeting);
  int4 sum = make_int4(0, 0, 0, 0);
#pragma unroll 1
  for (u32 round = 0; round < ROUNDS; ++round) {
    rows[thread] = __ldcg(from + round * LINE);
    __syncthreads();
    add(sum, rows[thread ^ 1]);
    __syncthreads();
  }
  out[blockIdx.x * THREADS + thread] = sum;
}

template <u32 LINES>
__global__ void __launch_bounds__(32) turns(const int4* data, int4* out, u32* meeting) {
  constexpr u32 READERS = 8, LINE = 8, ROWS = 64, AT_ONCE = 8, HALVES = LINES / AT_ONCE;
  const int4* from = data + u64(blockIdx.x / READERS * ROWS + threadIdx.x / 4) * WIDTH + threadIdx.x % 4;
  meet(meeting);
  int4 sum = make_int4(0, 0, 0, 0);
#pragma unroll 1
  for (u32 round = 0; round < WIDTH / LINE; ++round) {
    int4 next[2 * ROWS / AT_ONCE];
#pragma unroll
    for (u32 i = 0; i < 2 * ROWS / AT_ONCE; ++i) {
      u32 rows = i / (2 * HALVES) * HALVES + i % HALVES, half = i / HALVES % 2;
      next[i] = __ldcg(from + u64(rows * AT_ONCE) * WIDTH + round * LINE + half * 4);
    }
#pragma unroll
    for (int4 value : next) add(sum, value);
    from += __shfl_xor_sync(~0u, sum.x == 0 && sum.w == 0 && sum.y == 1, 1);  // waits for all
  }
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}

int main() {
  constexpr u32 BLOCKS = 64;
  auto data = static_cast<const int4*>(random_memory(u64(BLOCKS) * THREADS * WIDTH * sizeof(int4)));
  auto out = device_memory<int4>(BLOCKS * THREADS);
  auto meeting = device_memory<u32>(1);
  CHECK(cudaFuncSetAttribute(copied, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
  CHECK(cudaFuncSetAttribute(halves, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
  std::printf("kernel,blocks,readers,chunks,pitch,first,asynchronous\n");
  for (u32 by = 0; by < 5; ++by) {
    CHECK(cudaMemset(meeting, 0, sizeof *meeting));
    halves<<<BLOCKS, THREADS, WHOLE_SM>>>(data, out, meeting, by);
    finish();
    std::printf("halves %u,%u,8,4,0,0,0\n", by, BLOCKS);
  }
  auto turned = [&](auto kernel, u32 lines) {
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
    CHECK(cudaMemset(meeting, 0, sizeof *meeting));
    kernel<<<BLOCKS, 32, WHOLE_SM>>>(data, out, meeting);
    finish();
    std::printf("turns %u,%u,8,8,0,0,0\n", lines, BLOCKS);
  };
  turned(turns<8>, 8), turned(turns<16>, 16), turned(turns<32>, 32), turned(turns<64>, 64);
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
