// Reads of a tile that neighbouring blocks share, by blocks that read it once, for
// benchmarks/microbenchmarks.py, which counts the sectors that the L1s and the L2 read.
//
// `tiles`: groups of `readers` neighbouring blocks read the same tile of 1 KiB, in rows of `row_bytes`
// that lie apart as those of a matrix, and with `own`, a KiB of their own from DRAM each; then
// they multiply for `work` steps, and write.
#include "device.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    tiles(const float* shared, const float* own, float* out, u32 readers, u32 row_bytes,
          u32 pitch_bytes, u32 has_own, u32 work) {
  __shared__ float tile[THREADS];
  extern __shared__ float unused[];
  u32 lanes = row_bytes / 4, row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  u32 group = blockIdx.x / readers, rows = THREADS / lanes;
  float value = shared[(u64(group) * rows + row) * (pitch_bytes / 4) + lane];
  float other = has_own ? own[u64(blockIdx.x) * THREADS + threadIdx.x] : 1.0f;
  tile[threadIdx.x] = value;
  __syncthreads();
  for (u32 step = 0; step < work; ++step)
    other = fmaf(other, tile[(threadIdx.x + step) % THREADS], value);
  out[u64(blockIdx.x) * THREADS + threadIdx.x] = other;
}

int main() {
  auto shared = static_cast<const float*>(random_memory(1ull << 30));
  auto own = static_cast<const float*>(random_memory(256ull << 20));
  auto out = device_memory<float>(64ull << 20);
  int sms = multiprocessors();
  std::printf("kernel,blocks_per_sm,waves,readers,row_bytes,own,work\n");
  for (int per_sm : {1, 2, 4, 8})
    for (int waves : {4, 16})
      for (u32 readers : {4, 32, 132})
        for (u32 row_bytes : {64, 128})
          for (u32 has_own : {0, 1})
            for (u32 work : {16, 256}) {
              if (work == 256 && (row_bytes == 128 || readers == 4)) continue;
              int bytes = per_sm == 8 ? 0 : 200 * 1024 / per_sm - 2048;
              CHECK(cudaFuncSetAttribute(tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
              tiles<<<sms * per_sm * waves, THREADS, bytes>>>(shared, own, out, readers, row_bytes,
                                                              8192, has_own, work);
              finish();
              std::printf("tiles,%d,%d,%u,%u,%u,%u\n", per_sm, waves, readers, row_bytes, has_own, work);
            }
  return 0;
}
