// What the micro-benchmarks of the time model share: clocks, SMs, random words.
#pragma once

#include "check.cuh"

using u32 = unsigned;
using u64 = unsigned long long;

// The low half of the SM's clock counter.
__device__ __forceinline__ u32 clock_low() {
  u32 clock;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock)::"memory");
  return clock;
}

__device__ __forceinline__ u64 clock_of_sm() {
  u64 clock;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock)::"memory");
  return clock;
}

__device__ __forceinline__ u32 multiprocessor() {
  u32 number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}

// Waits until all blocks of a grid that is resident as a whole have come here; `meeting` is 0 before.
__device__ __forceinline__ void meet(u32* meeting) {
  if (threadIdx.x == 0) {
    atomicAdd(meeting, 1);
    while (*(volatile u32*)meeting < gridDim.x) {
    }
  }
  __syncthreads();
}

__host__ __device__ __forceinline__ u32 hashed(u32 a, u32 b) {
  u32 x = a * 0x9E3779B9u ^ b;
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  return x ^ x >> 16;
}

// Odd random words.
__global__ void randomize(u32* words, u64 count, u32 seed) {
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += u64(gridDim.x) * blockDim.x)
    words[i] = hashed(seed, u32(i)) | 1;
}

// Brings words to the L2, past the L1s.
__global__ void read_all(const u32* words, u64 count, u32* sink) {
  u32 all = 0;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x)
    all ^= __ldcg(words + i);
  if (all == 0x12345678) *sink = all;
}

// Memory of the device with random words.
inline void* random_memory(u64 bytes) {
  void* memory;
  CHECK(cudaMalloc(&memory, bytes));
  randomize<<<1056, 512>>>(static_cast<u32*>(memory), bytes / sizeof(u32), 7);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  return memory;
}

template <class T>
T* device_memory(u64 count) {
  T* memory;
  CHECK(cudaMalloc(&memory, count * sizeof(T)));
  return memory;
}

inline int attribute(cudaDeviceAttr which) {
  int value;
  CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

inline int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

// A launch has ended without an error.
inline void finish() {
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}
