// Reads of arrays again and again, for benchmarks/capacity.py: what the L1s and the L2 keep.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.cuh"

constexpr int LINE = 128, SECTOR = 32;
constexpr size_t KIB = 1024, MIB = 1024 * KIB;

// All blocks, which must be resident at once, wait for one another; by atomics, so that no read is
// counted.
__device__ void wait_for_all(unsigned* arrived, unsigned turn) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (atomicAdd(arrived, 0u) < gridDim.x * turn) {
    }
  }
  __syncthreads();
}

__device__ uint4 read_cached(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.ca.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ uint4 read_l2(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// Each block reads `bytes` from end to end in each pass: its own part, or in pass p that of the
// block p * shift further on. `cached` reads may stay in the L1. With `written`, as many bytes as
// are read in a pass are written elsewhere.
__global__ void again(const char* data, char* written, unsigned* sink, unsigned* arrived,
                      size_t bytes, int passes, int shift, int cached) {
  extern __shared__ char carved[];
  unsigned sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    if (pass && shift)
      wait_for_all(arrived, pass);
    else
      __syncthreads();
    size_t part = (blockIdx.x + size_t(pass) * shift) % gridDim.x;
    const char* from = data + part * bytes;
    for (size_t at = threadIdx.x * sizeof(uint4); at < bytes; at += blockDim.x * sizeof(uint4)) {
      const uint4* place = reinterpret_cast<const uint4*>(from + at);
      uint4 value = cached ? read_cached(place) : read_l2(place);
      sum += value.x ^ value.w;
      if (written)
        *reinterpret_cast<uint4*>(written + blockIdx.x * bytes + at) = value;
    }
  }
  if (sum == 0x12345678u) {
    carved[threadIdx.x % 16] = 1;
    *sink = sum + carved[0];
  }
}

// Each thread reads sectors at random.
__global__ void random_reads(const char* data, unsigned* sink, unsigned sectors, int reads,
                             int cached) {
  unsigned state = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u, sum = 0;
  for (int i = 0; i < reads; ++i) {
    state = state * 1664525u + 1013904223u;
    unsigned mixed = (state ^ (state >> 15)) * 0x2c1b3c6du;
    mixed ^= mixed >> 12;
    unsigned sector = unsigned((uint64_t(mixed) * sectors) >> 32);
    const uint4* place = reinterpret_cast<const uint4*>(data + size_t(sector) * SECTOR);
    uint4 value = cached ? read_cached(place) : read_l2(place);
    sum += value.x;
  }
  if (sum == 0x12345678u)
    *sink = sum;
}

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int sms = properties.multiProcessorCount;
  char *data, *other;
  unsigned *sink, *arrived;
  CHECK(cudaMalloc(&data, 512 * MIB));
  CHECK(cudaMalloc(&other, 512 * MIB));
  CHECK(cudaMemset(data, 1, 512 * MIB));
  CHECK(cudaMalloc(&sink, sizeof *sink));
  CHECK(cudaMalloc(&arrived, sizeof *arrived));
  CHECK(cudaFuncSetAttribute(again, cudaFuncAttributeMaxDynamicSharedMemorySize, 220 * 1024));
  std::printf("kernel,case,blocks_per_sm,threads,bytes,passes,shared_bytes\n");
  auto run_again = [&](const char* name, int per_sm, int threads, size_t bytes, int passes,
                       int shift, bool cached, bool writes, int shared) {
    bytes = bytes / 16 * 16;
    CHECK(cudaMemset(arrived, 0, sizeof *arrived));
    again<<<sms * per_sm, threads, shared>>>(data, writes ? other : nullptr, sink, arrived, bytes,
                                             passes, shift, cached);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("again,%s,%d,%d,%zu,%d,%d\n", name, per_sm, threads, bytes * per_sm, passes,
                shared);
  };
  // --- The L1: bytes of each multiprocessor
  for (int kib : {64, 96, 128, 160, 176, 192, 200, 208, 216, 224, 232, 240, 248, 256, 288, 384}) {
    run_again("L1", 1, 1024, kib * KIB, 4, 0, true, false, 0);
    run_again("L1", 8, 256, kib * KIB / 8, 4, 0, true, false, 0);
  }
  for (int shared : {8, 32, 64, 100, 132, 164, 196})
    for (int kib : {32, 64, 96, 128, 160, 192, 224})
      run_again("L1 beside shared memory", 1, 1024, kib * KIB, 4, 0, true, false,
                (shared - 1) * 1024);
  // --- The L2: bytes of all
  for (int mib : {8, 16, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 96, 128, 160}) {
    size_t bytes = mib * MIB / (2 * sms) / LINE * LINE;
    run_again("L2 same SM", 2, 1024, bytes, 3, 0, false, false, 0);
    run_again("L2 other SM", 2, 1024, bytes, 3, sms + 7, false, false, 0);
    run_again("L2 with writes", 2, 1024, bytes, 3, 0, false, true, 0);
  }
  // --- At random: each sector is read four times in the mean
  for (int mib : {8, 16, 32, 40, 48, 56, 64, 80, 96, 128, 256}) {
    unsigned sectors = unsigned(mib * MIB / SECTOR);
    int threads = sms * 2048, reads = int(4ull * sectors / threads) + 1;
    random_reads<<<sms * 8, 256>>>(data, sink, sectors, reads, 0);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("random_reads,L2,8,256,%zu,%d,0\n", mib * MIB, reads);
  }
  for (int kib : {64, 128, 160, 192, 224, 256, 320, 512, 1024}) {
    unsigned sectors = unsigned(kib * KIB / SECTOR);
    random_reads<<<sms * 8, 256>>>(data, sink, sectors, 64, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("random_reads,L1,8,256,%zu,%d,0\n", kib * KIB, 64);
  }
  return 0;
}
