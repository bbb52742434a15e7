// Additions to few addresses of global memory, for benchmarks/atomics.py: a row for each case, with
// the time that a warp's request adds to a launch of all SMs.
#include <algorithm>

#include "median_time.cuh"

constexpr int THREADS = 256, BLOCKS_PER_SM = 2, FEW_TRIPS = 16, MANY_TRIPS = 144, REPEATS = 9;
constexpr size_t BYTES = 64 << 20;

// In each trip, lane i of the first `lanes` adds to word i % distinct * stride of its block's words,
// which begin `block_stride` words after those of the block before.
template <class T>
__global__ void add(T* words, unsigned lanes, unsigned distinct, unsigned stride,
                    unsigned block_stride, int trips) {
  unsigned lane = threadIdx.x % 32;
  if (lane >= lanes) return;
  T* word = words + lane % distinct * stride + blockIdx.x * block_stride;
  for (int trip = 0; trip < trips; ++trip) atomicAdd(word, T(1));
}

// In each trip, each thread adds to one of `bins` words, `stride` words apart, at random.
template <class T>
__global__ void add_random(T* words, unsigned bins, unsigned stride, int trips) {
  unsigned random = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u;
  for (int trip = 0; trip < trips; ++trip) {
    random = random * 1664525u + 1013904223u;  // Numerical Recipes' generator
    atomicAdd(words + (random >> 8) % bins * stride, T(1));
  }
}

template <class T>
void run(const char* type, int blocks) {
  T* words;
  CHECK(cudaMalloc(&words, BYTES));
  CHECK(cudaMemset(words, 0, BYTES));
  double requests = double(blocks) * THREADS / 32 * (MANY_TRIPS - FEW_TRIPS);
  auto row = [&](const char* kernel, unsigned lanes, unsigned addresses, unsigned stride,
                 unsigned block_stride, auto launch) {
    double few = median_ns(REPEATS, [&] { launch(FEW_TRIPS); });
    double many = median_ns(REPEATS, [&] { launch(MANY_TRIPS); });
    std::printf("%s,%s,%u,%u,%zu,%zu,%.4f\n", kernel, type, lanes, addresses, stride * sizeof(T),
                block_stride * sizeof(T), (many - few) / requests);
  };
  auto run_add = [&](unsigned lanes, unsigned distinct, unsigned stride, unsigned block_stride) {
    row("add", lanes, distinct, stride, block_stride, [&](int trips) {
      add<T><<<blocks, THREADS>>>(words, lanes, distinct, stride, block_stride, trips);
    });
  };
  // --- All warps at the same addresses
  for (unsigned lanes = 1; lanes <= 32; lanes *= 2)
    for (unsigned distinct = 1; distinct <= lanes; distinct *= 2)
      for (unsigned bytes : {4u, 32u, 128u, 4096u})
        if (bytes == 4 || distinct > 1)
          run_add(lanes, distinct, std::max(bytes / unsigned(sizeof(T)), 1u), 0);
  // --- Each block at its own
  for (unsigned bytes : {32u, 128u, 4096u})
    for (unsigned distinct : {1u, 4u}) run_add(32, distinct, 1, bytes / sizeof(T));
  // --- At random
  for (unsigned bins = 1; bins <= 1 << 20; bins *= 2)
    for (unsigned bytes : {unsigned(sizeof(T)), 32u})
      row("add_random", 32, bins, bytes / sizeof(T), 0, [&](int trips) {
        add_random<T><<<blocks, THREADS>>>(words, bins, bytes / sizeof(T), trips);
      });
  CHECK(cudaFree(words));
}

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int blocks = BLOCKS_PER_SM * properties.multiProcessorCount;
  std::printf("kernel,type,lanes,addresses,stride_bytes,block_stride_bytes,ns_per_request\n");
  run<unsigned>("u32", blocks);
  run<float>("f32", blocks);
  run<unsigned long long>("u64", blocks);
  run<double>("f64", blocks);
  return 0;
}
