// Calls of functions that the driver adds to a kernel (printf, malloc, free), by some lanes of some
// warps, for benchmarks/microbenchmarks.py, which counts their instructions and time.

#include <fcntl.h>
#include <unistd.h>

#include "device.cuh"

constexpr u64 HEAP_BYTES = u64(4) << 30;
constexpr u64 OUTPUT_BYTES = 64 << 20;

enum Call { SHORT_TEXT, LONG_TEXT, NUMBERS, ALLOCATE, RELEASE, BOTH };
constexpr const char* NAMES[] = {"printf 5", "printf 45", "printf 4 numbers", "malloc", "free", "malloc free"};

template <Call CALL>
__global__ void calls(void** kept, u32 lanes, u32 count, u32 bytes) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x % 32 >= lanes) return;
#pragma unroll 1
  for (u32 call = 0; call < count; ++call) {
    if constexpr (CALL == SHORT_TEXT) printf("text\n");
    if constexpr (CALL == LONG_TEXT) printf("a text that is longer than the other texts\n\n\n");
    if constexpr (CALL == NUMBERS) printf("%u %u %u %u\n", thread, call, lanes, count);
    if constexpr (CALL == ALLOCATE) kept[thread * count + call] = malloc(bytes);
    if constexpr (CALL == RELEASE) free(kept[thread * count + call]);
    if constexpr (CALL == BOTH) {
      void* made = malloc(bytes);
      kept[thread * count + call] = made;
      free(made);
    }
  }
}

template <Call CALL>
void measure(void** kept, u32 blocks, u32 threads, u32 lanes, u32 count, u32 bytes) {
  std::fflush(stdout);
  int table = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  calls<CALL><<<blocks, threads>>>(kept, lanes, count, bytes);
  finish();
  std::fflush(stdout);
  dup2(table, STDOUT_FILENO);
  close(table);
  close(nowhere);
  std::printf("%s,%u,%u,%u,%u,%u\n", NAMES[CALL], blocks, threads, lanes, count, bytes);
}

template <Call... CALLS>
void measure_all(void** kept, u32 blocks, u32 threads, u32 lanes, u32 count, u32 bytes) {
  (measure<CALLS>(kept, blocks, threads, lanes, count, bytes), ...);
}

int main() {
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, HEAP_BYTES));
  CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, OUTPUT_BYTES));
  void** kept = device_memory<void*>(1 << 22);
  CHECK(cudaMemset(kept, 0, sizeof(void*) << 22));
  const u32 shapes[][4] = {  // blocks, threads, lanes, calls
      {1, 32, 1, 0},    {1, 32, 1, 1},    {1, 32, 1, 2},   {1, 32, 1, 4},    {1, 32, 1, 16},
      {1, 32, 2, 1},    {1, 32, 4, 1},    {1, 32, 8, 1},   {1, 32, 16, 1},   {1, 32, 32, 1},
      {1, 32, 32, 4},   {8, 32, 1, 1},    {8, 32, 32, 1},  {132, 32, 1, 1},  {132, 32, 32, 1},
      {528, 32, 1, 1},  {528, 32, 32, 1}, {1, 256, 1, 1},  {1, 256, 32, 1},  {1, 1024, 32, 1},
      {132, 256, 1, 1}, {132, 256, 4, 1}, {132, 256, 32, 1}};
  std::printf("kernel,blocks,threads,lanes,calls,bytes\n");
  for (auto [blocks, threads, lanes, count] : shapes) {
    measure_all<SHORT_TEXT, LONG_TEXT, NUMBERS>(kept, blocks, threads, lanes, count, 0);
    for (u32 bytes : {16u, 256u, 4096u})
      measure_all<ALLOCATE, RELEASE, BOTH>(kept, blocks, threads, lanes, count, bytes);
  }
}
