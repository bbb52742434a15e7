// Waits at barriers in shared memory and for the copy engine, for benchmarks/microbenchmarks.py:
// clocks, of many rounds the `least`, the `median`, the `mean` and that which `most_90` percent do not
// exceed. Of arrivals, from the clock before one until a warp, or a lane of one, has gone on that
// has waited for `delay` clocks: warp 0 arrives, `other` waits. Of `count` copies of some bytes from
// the L2, by one thread on one SM or on all, from before the arrival that expects them until the
// warp has waited for them, with the instructions between: some 130 clocks for each copy.
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#define BF16 3
#define FP16 2
#define INPUT BF16
#include "../kernels/hopper.cuh"
#include "device.cuh"

extern __shared__ __align__(1024) unsigned char memory[];
constexpr int ROUNDS = 64;

__device__ __forceinline__ bool tested(u32 barrier, u32 parity) {
  u32 complete;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(complete) : "r"(barrier), "r"(parity) : "memory");
  return complete;
}

// how: 0 try_wait by a warp, 1 try_wait by a lane, 2 test_wait by a warp, 4 as 0 with an arrival that
// expects no bytes, 5 try_wait of what is complete.
template <int HOW>
__global__ void wake(u32 delay, u32 other, u32* results) {
  __shared__ __align__(8) u64 words[2];
  __shared__ volatile u32 sent[ROUNDS], woken[ROUNDS], begun[ROUNDS];
  u32 barrier = shared_address(words), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    make_barrier(barrier, 1);
    publish_barriers();
  }
  __syncthreads();
  for (int round = 0; round < ROUNDS; ++round) {
    __syncthreads();
    u32 start = clock_low();
    if (warp == 0) {
      u32 wait_for = HOW == 5 ? 0 : delay;
      while (clock_low() - start < wait_for) {
      }
      if (lane == 0) {
        u32 now = clock_low();
        if (HOW == 4)
          arrive_expecting(barrier, 0);
        else
          arrive(barrier);
        sent[round] = now;
      }
    } else if (warp == other) {
      if (HOW == 5)
        while (clock_low() - start < delay) {
        }
      u32 began = clock_low();
      if (HOW == 2) {
        while (!tested(barrier, round & 1)) {
        }
      } else if (HOW != 1 || lane == 0) {
        wait(barrier, round & 1);
      }
      u32 now = clock_low();
      if (lane == 0) {
        woken[round] = now;
        begun[round] = began;
      }
    }
  }
  __syncthreads();
  for (int round = threadIdx.x; round < ROUNDS; round += blockDim.x) {
    results[3 * round] = sent[round];
    results[3 * round + 1] = woken[round];
    results[3 * round + 2] = begun[round];
  }
}

// A thread copies boxes of so many bytes from the L2, each after the other; `tensor`: by a tensor map.
// waits with the whole warp. out: clocks from before the first instruction to after the wait.
__global__ void copy(const __grid_constant__ CUtensorMap map, const unsigned char* from, u32 bytes, int tensor,
                     int boxes, u32 region, u32* results) {
  __shared__ __align__(8) u64 words[1];
  __shared__ u32 taken[ROUNDS];
  u32 barrier = shared_address(words), to = (shared_address(memory) + 1023) & ~1023;
  if (threadIdx.x == 0) {
    make_barrier(barrier, 1);
    publish_barriers();
  }
  __syncwarp();
  from += blockIdx.x * u64(region);
  for (int round = 0; round < ROUNDS; ++round) {
    u32 start = clock_low();
    if (threadIdx.x == 0) {
      arrive_expecting(barrier, boxes * bytes);
      for (int box = 0; box < boxes; ++box) {
        int place = (round * boxes + box) % (region / bytes);
        if (tensor)
          load_box(to + box * bytes, &map, 0, (blockIdx.x * (region / bytes) + place) * (bytes / 128), barrier);
        else
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                  "r"(to + box * bytes),
              "l"(from + u64(place) * bytes), "r"(bytes), "r"(barrier)
              : "memory");
      }
    }
    __syncwarp();
    wait(barrier, round & 1);
    u32 now = clock_low();
    if (threadIdx.x == 0) taken[round] = now - start;
    __syncwarp();
    while (clock_low() - now < 2000) {
    }
  }
  for (int round = threadIdx.x; round < ROUNDS; round += 32) results[blockIdx.x * ROUNDS + round] = taken[round];
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void print(const char* what, int a, int b, int c, std::vector<u32> found) {
  std::sort(found.begin(), found.end());
  double sum = 0;
  for (u32 x : found) sum += x;
  std::printf("%s,%d,%d,%d,%u,%u,%.1f,%u\n", what, a, b, c, found[0], found[found.size() / 2],
              sum / found.size(), found[found.size() * 9 / 10]);
}

template <int HOW>
void wakes(const char* what) {
  auto* results = device_memory<u32>(3 * ROUNDS);
  for (int other : {1, 4})
    for (int delay : {100, 200, 300, 330, 360, 400, 500, 700, 1000, 1500, 2000, 4000, 10000}) {
      wake<HOW><<<1, 160>>>(delay, other, results);
      finish();
      std::vector<u32> raw(3 * ROUNDS), found;
      CHECK(cudaMemcpy(raw.data(), results, raw.size() * 4, cudaMemcpyDeviceToHost));
      for (int i = 8; i < ROUNDS; ++i)
        found.push_back(raw[3 * i + 1] - raw[3 * i + (HOW == 5 ? 2 : 0)]);
      print(what, delay, other, 0, found);
    }
}

int main() {
  std::printf("what,clocks_or_bytes,other_or_count,sms,least,median,mean,most_90\n");
  wakes<0>("try_wait warp");
  wakes<1>("try_wait lane");
  wakes<2>("test_wait warp");
  wakes<4>("try_wait expect");
  wakes<5>("complete before");
  int sms = multiprocessors();
  u32 region = 131072;
  auto* from = static_cast<unsigned char*>(random_memory(u64(sms) * region));
  auto* results = device_memory<u32>(sms * ROUNDS);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status));
  CHECK(cudaFuncSetAttribute(copy, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  for (int tensor : {0, 1})
    for (int blocks : {1, sms})
      for (int boxes : {1, 2, 4})
        for (u32 bytes : {128u, 1024u, 4096u, 8192u, 16384u, 32768u}) {
          CUtensorMap map{};
          cuuint64_t size[] = {32, u64(sms) * region / 128}, pitch[] = {128};
          cuuint32_t box[] = {32, bytes / 128}, step[] = {1, 1};
          if (reinterpret_cast<Encode>(found)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, from, size, pitch, box, step,
                                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
            continue;
          for (int twice = 0; twice < 2; ++twice)
            copy<<<blocks, 32, 200 * 1024>>>(map, from, bytes, tensor, boxes, region, results);
          finish();
          std::vector<u32> raw(blocks * ROUNDS), of;
          CHECK(cudaMemcpy(raw.data(), results, raw.size() * 4, cudaMemcpyDeviceToHost));
          for (int i = 0; i < blocks * ROUNDS; ++i)
            if (i % ROUNDS >= 4) of.push_back(raw[i]);
          print(tensor ? "tensor copy" : "bulk copy", bytes, boxes, blocks, of);
        }
}
