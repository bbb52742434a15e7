// When the results of loads are there that take several wavefronts of an SM's L1, for
// benchmarks/microbenchmarks.py.
//
// Warps of one block load from shared memory, or lines that the L1 has. Each lane is `stride`
// items behind the one before, so that loads have bank conflicts, or read several lines. A warp
// makes 1 or 8 loads, waits for all of them, and so on; clocks are those of a turn.
#include "device.cuh"

constexpr int ITEMS = 512;  // that the loads of a turn begin in
constexpr int TURNS = 100;
constexpr int WORDS = 16384;
constexpr int MOST_WARPS = 16;

__device__ __forceinline__ u32 first(u32 item) { return item; }
__device__ __forceinline__ u32 first(uint2 item) { return item.x; }
__device__ __forceinline__ u32 first(uint4 item) { return item.x; }

template <class T, int LOADS, bool SHARED>
__global__ void load(const T* words, int stride, u32* sink, u64* clocks) {
  extern __shared__ uint4 raw[];
  u32* copied = reinterpret_cast<u32*>(raw);
  u32 most = 0;
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
    u32 word = reinterpret_cast<const u32*>(words)[i];
    if (SHARED)
      copied[i] = word;
    most = max(most, word);
  }
  __syncthreads();
  const T* from = SHARED ? reinterpret_cast<const T*>(raw) : words;
  from += threadIdx.x % 32 * stride;
  u64 begin = clock_of_sm();
  for (int turn = 0; turn < TURNS; ++turn) {
    T loaded[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      loaded[i] = SHARED ? from[i * 64 % ITEMS] : __ldca(from + i * 64 % ITEMS);
    u32 now = 0;
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      now |= first(loaded[i]);
    from += now == 0;  // never, as words are odd
    most = max(most, now);
  }
  u64 taken = clock_of_sm() - begin;
  if (threadIdx.x % 32 == 0)
    clocks[threadIdx.x / 32] = taken;
  sink[threadIdx.x] = most;
}

template <class T, int LOADS, bool SHARED>
void measure(const void* words, u32* sink, u64* clocks) {
  auto kernel = load<T, LOADS, SHARED>;
  int shared_bytes = SHARED ? WORDS * sizeof(u32) : 0;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  for (int warps : {1, 2, 4, 8, 16})
    for (int stride : {1, 2, 4, 8, 16, 32}) {
      if ((32 * stride + ITEMS) * sizeof(T) > WORDS * sizeof(u32))
        continue;
      for (int run = 0; run < 2; ++run)  // the first one fetches the code
        kernel<<<1, warps * 32, shared_bytes>>>(static_cast<const T*>(words), stride, sink,
                                                clocks);
      finish();
      u64 of_warps[MOST_WARPS], sum = 0;
      CHECK(cudaMemcpy(of_warps, clocks, warps * sizeof(u64), cudaMemcpyDeviceToHost));
      for (int warp = 0; warp < warps; ++warp)
        sum += of_warps[warp];
      std::printf("%s,%zu,%d,%d,%d,%.1f\n", SHARED ? "shared" : "global", sizeof(T), LOADS, warps,
                  stride, double(sum) / warps / TURNS);
    }
}

template <class T>
void measure_all(const void* words, u32* sink, u64* clocks) {
  measure<T, 1, true>(words, sink, clocks);
  measure<T, 8, true>(words, sink, clocks);
  measure<T, 1, false>(words, sink, clocks);
  measure<T, 8, false>(words, sink, clocks);
}

int main() {
  void* words = random_memory(WORDS * sizeof(u32));
  u32* sink = device_memory<u32>(MOST_WARPS * 32);
  u64* clocks = device_memory<u64>(MOST_WARPS);
  std::printf("memory,bytes_per_lane,loads,warps,stride,clocks\n");
  measure_all<u32>(words, sink, clocks);
  measure_all<uint2>(words, sink, clocks);
  measure_all<uint4>(words, sink, clocks);
  return 0;
}
