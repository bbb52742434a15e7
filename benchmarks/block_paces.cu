// How the blocks of an SM share it, for benchmarks/microbenchmarks.py.
//
// All blocks start at once and do the same: in each of `steps` steps they load a line a warp from the
// L2, wait at two barriers or, where `barriers` is 0, at none, and compute for `work` steps. Ranks
// are those of the blocks of an SM by the time when they end. `half_ns` and `end_ns` are when they
// have done half and all of their steps, `done` is the share that they have done when the first one
// ends: medians over the SMs.
#include <algorithm>
#include <vector>

#include "device.cuh"

constexpr int THREADS = 256, MOST_BLOCKS = 8, STAMPS = 65;
constexpr u32 TILES = 1024;

struct Times {
  u64 stamps[STAMPS];  // of the timer of the device, at equal parts of the steps
  u32 sm;
};

__device__ u64 timer() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

template <bool BARRIERS>
__global__ void __launch_bounds__(THREADS)
    paces(const float4* in, Times* times, float* out, u32 steps, u32 work) {
  __shared__ float4 tile[THREADS];
  float sum = threadIdx.x, factor = 1.0f + threadIdx.x * 1e-6f;
  u32 part = steps / (STAMPS - 1);
  for (u32 step = 0; step < steps; ++step) {
    if (threadIdx.x == 0 && step % part == 0)
      times[blockIdx.x].stamps[step / part] = timer();
    float4 value = in[step % TILES * THREADS + threadIdx.x];
    if (BARRIERS) {
      tile[threadIdx.x] = value;
      __syncthreads();
    }
#pragma unroll 8
    for (u32 i = 0; i < work; ++i)
      sum = fmaf(sum, factor, BARRIERS ? tile[(threadIdx.x + i) % THREADS].x : value.x);
    if (BARRIERS)
      __syncthreads();
    sum += value.y;
  }
  if (threadIdx.x == 0) {
    times[blockIdx.x].stamps[STAMPS - 1] = timer();
    times[blockIdx.x].sm = multiprocessor();
  }
  out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The share of its steps that a block has done at some time.
double done(const Times& of, u64 now) {
  int part = 0;
  while (part < STAMPS - 1 && of.stamps[part + 1] <= now)
    ++part;
  if (part == STAMPS - 1 || now <= of.stamps[0])
    return part == STAMPS - 1;
  double within = double(now - of.stamps[part]) / double(of.stamps[part + 1] - of.stamps[part]);
  return (part + within) / (STAMPS - 1);
}

template <bool BARRIERS>
void measure(int per_sm, u32 steps, u32 work, const float4* in, Times* times, float* out) {
  int sms = multiprocessors(), blocks = sms * per_sm, shared = 200 * 1024 / per_sm - 5 * 1024;
  CHECK(cudaFuncSetAttribute(paces<BARRIERS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  std::vector<Times> found(blocks);
  for (int warm = 1; warm >= 0; --warm) {
    paces<BARRIERS><<<blocks, THREADS, shared>>>(in, times, out, steps, work);
    finish();
  }
  CHECK(cudaMemcpy(found.data(), times, blocks * sizeof(Times), cudaMemcpyDeviceToHost));
  u64 begin = ~u64(0);
  std::vector<std::vector<Times>> of_sm(sms);
  for (const Times& each : found) {
    begin = std::min(begin, each.stamps[0]);
    if (each.sm < u32(sms))
      of_sm[each.sm].push_back(each);
  }
  std::vector<std::vector<double>> half(per_sm), end(per_sm), share(per_sm);
  for (auto& of : of_sm) {
    if (int(of.size()) != per_sm)
      continue;
    std::sort(of.begin(), of.end(), [](const Times& a, const Times& b) {
      return a.stamps[STAMPS - 1] < b.stamps[STAMPS - 1];
    });
    for (int rank = 0; rank < per_sm; ++rank) {
      half[rank].push_back(double(of[rank].stamps[STAMPS / 2] - begin));
      end[rank].push_back(double(of[rank].stamps[STAMPS - 1] - begin));
      share[rank].push_back(done(of[rank], of[0].stamps[STAMPS - 1]));
    }
  }
  for (int rank = 0; rank < per_sm; ++rank)
    if (!half[rank].empty())
      std::printf("%d,%u,%u,%d,%d,%.0f,%.0f,%.3f\n", per_sm, steps, work, int(BARRIERS), rank,
                  median(half[rank]), median(end[rank]), median(share[rank]));
}

int main() {
  int most = multiprocessors() * MOST_BLOCKS;
  auto in = static_cast<const float4*>(random_memory(u64(TILES) * THREADS * sizeof(float4)));
  auto times = device_memory<Times>(most);
  auto out = device_memory<float>(u64(most) * THREADS);
  std::printf("blocks_per_sm,steps,work,barriers,rank,half_ns,end_ns,done\n");
  for (int per_sm : {1, 2, 4, 8})
    for (u32 work : {2, 16, 64, 256}) {
      measure<true>(per_sm, 256, work, in, times, out);
      measure<false>(per_sm, 256, work, in, times, out);
    }
  return 0;
}
