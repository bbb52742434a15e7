// In which order warps end that keep the L1 busy with shared memory, for
// benchmarks/microbenchmarks.py: 8 blocks of 8 warps on each SM, of which two SMs are printed.
//
// `loads` are 256 dependent loads with conflicts of four words in a bank, `floats` and `ints` 256
// additions, of which the former are to words of each warp's own.
#include "device.cuh"

#include <vector>

enum Kind { LOADS, FLOATS, INTS };
constexpr int ROUNDS = 256, WARPS = 8, BLOCKS_PER_SM = 8;

struct Times {
  u32 sm, begin, end;
};

template <Kind KIND>
__global__ void ends(Times* times, u32* out) {
  __shared__ u32 words[2048];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x)
    words[i] = i * 32 % 1024;
  __syncthreads();
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = lane * 4, sum = 0;
  u32 begin = clock_low();
#pragma unroll 1
  for (int i = 0; i < ROUNDS; ++i) {
    if (KIND == LOADS) {
      at = words[at % 1024 / 4 * 4];
      sum += at;
    } else if (KIND == FLOATS) {
      atomicAdd(reinterpret_cast<float*>(words) + 1024 + warp * 32 + lane, 1.0f);
    } else {
      atomicAdd(words + 1024 + lane, 1u);
    }
  }
  u32 end = clock_low();
  if (lane == 0)
    times[blockIdx.x * WARPS + warp] = {multiprocessor(), begin, end};
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <Kind KIND>
void measure(const char* name, Times* times, u32* out, int sms) {
  int blocks = sms * BLOCKS_PER_SM;
  for (int again = 0; again < 2; ++again) {  // first with a cold instruction cache
    ends<KIND><<<blocks, WARPS * 32>>>(times, out);
    finish();
  }
  std::vector<Times> seen(blocks * WARPS);
  CHECK(cudaMemcpy(seen.data(), times, seen.size() * sizeof(Times), cudaMemcpyDeviceToHost));
  for (u32 sm : {seen[0].sm, (seen[0].sm + 40) % 100}) {
    bool known = false;
    u32 first = 0;
    for (const Times& of : seen)
      if (of.sm == sm && (!known || int(of.begin - first) < 0)) {
        first = of.begin;
        known = true;
      }
    for (size_t i = 0; i < seen.size(); ++i)
      if (seen[i].sm == sm)
        std::printf("%s,%u,%zu,%zu,%u,%u\n", name, sm, i / WARPS, i % WARPS, seen[i].begin - first,
                    seen[i].end - first);
  }
}

int main() {
  int sms = multiprocessors();
  Times* times = device_memory<Times>(sms * BLOCKS_PER_SM * WARPS);
  u32* out = device_memory<u32>(sms * BLOCKS_PER_SM * WARPS * 32);
  std::printf("instruction,sm,block,warp,begin_clocks,end_clocks\n");
  measure<LOADS>("loads", times, out, sms);
  measure<FLOATS>("floats", times, out, sms);
  measure<INTS>("ints", times, out, sms);
  return 0;
}
