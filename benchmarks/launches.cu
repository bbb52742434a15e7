// Launches that do nothing or store a word a thread, for benchmarks/microbenchmarks.py, which
// counts their time.
#include <utility>

#include "device.cuh"

constexpr int MOST_SHARED_BYTES = 220 * 1024;

__global__ void nothing() {}

__global__ void one_store(u32* out) { out[u64(blockIdx.x) * blockDim.x + threadIdx.x] = 1; }

int main() {
  u32* out = device_memory<u32>(64 << 20);
  CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             MOST_SHARED_BYTES));
  std::printf("kernel,blocks,threads,shared_bytes\n");
  const std::pair<int, int> shapes[] = {{1, 32},     {132, 32},    {132, 1024},  {1056, 256},
                                        {8448, 256}, {33792, 256}, {2112, 1024}, {33792, 32}};
  for (auto [blocks, threads] : shapes)
    for (int shared : {0, 40 * 1024, 200 * 1024}) {
      nothing<<<blocks, threads, shared>>>();
      finish();
      std::printf("nothing,%d,%d,%d\n", blocks, threads, shared);
    }
  for (int i = 0; i < 6; ++i) {
    auto [blocks, threads] = shapes[i];
    one_store<<<blocks, threads>>>(out);
    finish();
    std::printf("one_store,%d,%d,0\n", blocks, threads);
  }
  return 0;
}
