// Clocks of an SM for memory instructions of warps of which few lanes are active, or none, for
// benchmarks/microbenchmarks.py.
//
// One block executes `operation` over and over, of which the first `lanes` lanes of each warp are
// active: those of shared memory access words side by side, those of global memory, too. `clocks` are
// those per instruction of a warp, of the whole SM, from the first warp's start to the last one's
// end, in the second of two rounds.
#include <algorithm>
#include <vector>

#include "device.cuh"

constexpr int GROUPS = 32, TRIPS = 64;

enum Operation { LDS, STS, LDG, STG };
constexpr const char* NAMES[] = {"LDS", "STS", "LDG", "STG"};

template <int OF>
__device__ __forceinline__ void execute(u32 active, u32 shared, const u32* memory, u32& sum) {
  if constexpr (OF == LDS)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; @p ld.shared.u32 %0, [%2];}" : "+r"(sum) : "r"(active), "r"(shared));
  if constexpr (OF == STS)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p st.shared.u32 [%1], %2;}" ::"r"(active), "r"(shared), "r"(sum));
  if constexpr (OF == LDG)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; @p ld.global.u32 %0, [%2];}" : "+r"(sum) : "r"(active), "l"(memory));
  if constexpr (OF == STG)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.u32 [%1], %2;}" ::"r"(active), "l"(memory), "r"(sum));
}

template <int OF>
__global__ void timed(u32 lanes, u32* memory, u64* starts, u64* ends, u32* result) {
  __shared__ u32 words[1024];
  words[threadIdx.x] = threadIdx.x;
  u32 active = threadIdx.x % 32 < lanes, sum = 0;
  u32 shared = u32(__cvta_generic_to_shared(words + threadIdx.x));
  u32* own = memory + threadIdx.x;
  u64 start = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    __syncthreads();
    start = clock_of_sm();
#pragma unroll 1
    for (int trip = 0; trip < TRIPS; ++trip) {
#pragma unroll
      for (int group = 0; group < GROUPS; ++group) {
        execute<OF>(active, shared, own, sum);
        __syncwarp();  // else ptxas branches around them
      }
    }
    if (OF == LDS || OF == LDG) sum = __shfl_sync(~0u, sum, 0);
  }
  u64 end = clock_of_sm();
  if (threadIdx.x % 32 == 0) starts[threadIdx.x / 32] = start, ends[threadIdx.x / 32] = end;
  result[threadIdx.x] = sum;
}

u32 *memory, *result;
u64 *starts, *ends;

template <int OF>
void measure() {
  for (int lanes : {0, 1, 32})
    for (int warps : {1, 4, 16, 32}) {
      timed<OF><<<1, warps * 32>>>(lanes, memory, starts, ends, result);
      finish();
      std::vector<u64> first(warps), last(warps);
      CHECK(cudaMemcpy(first.data(), starts, warps * sizeof(u64), cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(last.data(), ends, warps * sizeof(u64), cudaMemcpyDeviceToHost));
      u64 clocks = *std::max_element(last.begin(), last.end()) - *std::min_element(first.begin(), first.end());
      std::printf("%s,%d,%d,%.3f\n", NAMES[OF], lanes, warps, double(clocks) / (warps * GROUPS * TRIPS));
    }
}

int main() {
  memory = static_cast<u32*>(random_memory(1024 * sizeof(u32)));
  result = device_memory<u32>(1024);
  starts = device_memory<u64>(32);
  ends = device_memory<u64>(32);
  std::printf("operation,lanes,warps,clocks\n");
  measure<LDS>();
  measure<STS>();
  measure<LDG>();
  measure<STG>();
}
