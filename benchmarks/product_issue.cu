// When warps have issued products of warpgroups, for benchmarks/microbenchmarks.py.
//
// One or two warpgroups (`groups`), the second one `apart` clocks later, issue `count` products in a
// row on one SM. Clocks from the start of a round: before the `first`, after each (`marks`), when all
// are `issued`, and when all are `complete`.
#include <cuda.h>

#include <cstdio>
#include <vector>

#define BF16 3
#define FP16 2
#define INPUT BF16
#include "../kernels/hopper.cuh"
#include "device.cuh"

extern __shared__ __align__(1024) unsigned char memory[];
constexpr int MOST = 16, ROUNDS = 8;

__device__ __forceinline__ void registers_256(float (&sums)[128], const u32 (&left)[4], u64 N) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES_128
               "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : SUMS_128 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(N));
}
__device__ __forceinline__ void registers_128(float (&sums)[64], const u32 (&left)[4], u64 N) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : SUMS_64 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(N));
}

// how: 0 m64n256 from shared memory, 1 from registers, 2 m64n128 from shared memory, 3 from registers.
template <int HOW, int COUNT>
__global__ void __launch_bounds__(256, 1) issue(const uint4* words, u32* results, float* out, u32 apart) {
  int group = uniform(threadIdx.x / 128);
  uint4* own = reinterpret_cast<uint4*>(memory);
  for (u32 i = threadIdx.x; i < 48 * 1024 / 16; i += blockDim.x) own[i] = words[i];
  show_to_copies();
  __syncthreads();
  u32 base = shared_address(memory);
  auto M = describe(base + group * 8192, 0), N = describe(base + 16384, 64 * 128);
  u32 left[4];
  for (int j = 0; j < 4; ++j) left[j] = reinterpret_cast<u32*>(memory)[j * 128 + threadIdx.x % 128];
  float sums[HOW < 2 ? 128 : 64];
  for (auto& sum : sums) sum = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    __syncthreads();
    u32 start = clock_low(), marks[COUNT];
    while (clock_low() - start < 500 + group * apart) {
    }
    u32 first = clock_low();
    begin_products();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      auto m = advance(M, i % 4 * 32), n = advance(N, i % 4 * 16 * 128);
      if constexpr (HOW == 0 || HOW == 2) multiply(sums, m, n, true);
      if constexpr (HOW == 1) registers_256(sums, left, n);
      if constexpr (HOW == 3) registers_128(sums, left, n);
      marks[i] = clock_low();
    }
    end_products();
    u32 issued = clock_low();
    wait_for_products<0>();
    u32 complete = clock_low();
    if (threadIdx.x % 128 == 0) {
      u32* row = results + (group * ROUNDS + round) * (MOST + 4);
      row[0] = first - start, row[1] = issued - start, row[2] = complete - start;
      for (int i = 0; i < COUNT; ++i) row[4 + i] = marks[i] - start;
    }
  }
  float sum = 0;
  for (auto part : sums) sum += part;
  if (sum == 12345.0f) out[threadIdx.x] = sum;
}

template <int HOW, int COUNT>
void measure(const uint4* words, u32* results, float* out) {
  CHECK(cudaFuncSetAttribute(issue<HOW, COUNT>, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
  for (int groups : {1, 2})
    for (u32 apart : {0u, 40u}) {
      CHECK(cudaMemset(results, 0, 2 * ROUNDS * (MOST + 4) * 4));
      issue<HOW, COUNT><<<1, 128 * groups, 64 * 1024>>>(words, results, out, apart);
      finish();
      std::vector<u32> found(2 * ROUNDS * (MOST + 4));
      CHECK(cudaMemcpy(found.data(), results, found.size() * 4, cudaMemcpyDeviceToHost));
      for (int group = 0; group < groups; ++group) {
        const u32* row = &found[(group * ROUNDS + ROUNDS - 1) * (MOST + 4)];
        std::printf("%d,%d,%d,%u,%d,%u,%u,%u,", HOW, COUNT, groups, apart, group, row[0], row[1], row[2]);
        for (int i = 0; i < COUNT; ++i) std::printf(i ? " %u" : "%u", row[4 + i]);
        std::printf("\n");
      }
    }
}

template <int HOW>
void all(const uint4* words, u32* results, float* out) {
  measure<HOW, 1>(words, results, out);
  measure<HOW, 2>(words, results, out);
  measure<HOW, 4>(words, results, out);
  measure<HOW, 8>(words, results, out);
  measure<HOW, 16>(words, results, out);
}

int main() {
  auto* words = static_cast<const uint4*>(random_memory(64 * 1024));
  auto* results = device_memory<u32>(2 * ROUNDS * (MOST + 4));
  auto* out = device_memory<float>(256);
  std::printf("how,count,groups,apart,group,first,issued,complete,marks\n");
  all<0>(words, results, out);
  all<1>(words, results, out);
  all<2>(words, results, out);
  all<3>(words, results, out);
}
