// On which SM, and for how long, the blocks of later waves run, for benchmarks/microbenchmarks.py.
//
// All blocks do the same: `dram` reads two words a thread from DRAM and writes one, `barriers` reads
// 16 lines a warp from the L2, between barriers, and multiplies, `arithmetic` multiplies alone. Of
// the blocks behind the first two waves, `clocks` is the mean time and `deviation` its standard
// deviation, relative; `same_sm_as_a_wave_before` is the share that run on the SM of the block that
// is a wave before them, as all would if blocks ended in the order in which they start.
#include <cmath>
#include <vector>

#include "device.cuh"

constexpr int THREADS = 256, MOST_BLOCKS = 6000;
enum Work { DRAM, BARRIERS, ARITHMETIC };
const char* const NAMES[] = {"dram", "barriers", "arithmetic"};

struct Place {
  u32 clocks, sm;
};

template <int WORK>
__global__ void __launch_bounds__(THREADS)
    places(const u32* in, u32* out, Place* found, int count, int work) {
  extern __shared__ u32 tile[];
  u64 begin = clock_of_sm();
  u32 sum = threadIdx.x;
  float product = threadIdx.x;
  for (int i = 0; i < count; ++i) {
    if (WORK == DRAM)
      sum ^= in[(u64(blockIdx.x) * count + i) * THREADS + threadIdx.x];
    if (WORK == BARRIERS) {
      u32 word = in[(u64(blockIdx.x % 64) * count + i) * THREADS + threadIdx.x];
      __syncthreads();
      tile[threadIdx.x] = word;
      __syncthreads();
    }
    for (int j = 0; j < work; ++j)
      product = fmaf(product, 1.0001f,
                     WORK == BARRIERS ? float(tile[(threadIdx.x + j) % THREADS]) : 1.0f);
  }
  out[u64(blockIdx.x) * THREADS + threadIdx.x] = sum + u32(product);
  if (threadIdx.x == 0)
    found[blockIdx.x] = {u32(clock_of_sm() - begin), multiprocessor()};
}

template <int WORK>
void measure(const u32* in, u32* out, Place* found, int per_sm, int blocks, int count, int work) {
  int shared = per_sm >= 8 ? THREADS * 4 : 200 * 1024 / per_sm - 1024;
  CHECK(cudaFuncSetAttribute(places<WORK>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  places<WORK><<<blocks, THREADS, shared>>>(in, out, found, count, work);
  finish();
  std::vector<Place> all(blocks);
  CHECK(cudaMemcpy(all.data(), found, blocks * sizeof(Place), cudaMemcpyDeviceToHost));
  int wave = multiprocessors() * per_sm, later = blocks - 2 * wave, same = 0;
  double sum = 0, squares = 0;
  for (int block = 2 * wave; block < blocks; ++block) {
    double clocks = all[block].clocks;
    sum += clocks, squares += clocks * clocks;
    same += all[block].sm == all[block - wave].sm;
  }
  double mean = sum / later;
  std::printf("%s,%d,%d,%.0f,%.3f,%.3f\n", NAMES[WORK], per_sm, blocks, mean,
              std::sqrt(squares / later - mean * mean) / mean, double(same) / later);
}

int main() {
  auto in = static_cast<const u32*>(random_memory(1ull << 30));
  auto out = device_memory<u32>(u64(MOST_BLOCKS) * THREADS);
  auto found = device_memory<Place>(MOST_BLOCKS);
  std::printf("work,blocks_per_sm,blocks,clocks,deviation,same_sm_as_a_wave_before\n");
  for (int per_sm : {2, 4, 8}) {
    measure<DRAM>(in, out, found, per_sm, MOST_BLOCKS, 2, 0);
    measure<BARRIERS>(in, out, found, per_sm, MOST_BLOCKS / 2, 16, 32);
    measure<ARITHMETIC>(in, out, found, per_sm, MOST_BLOCKS, 4, 200);
  }
  return 0;
}
