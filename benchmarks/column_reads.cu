// Reads of columns that blocks share, for benchmarks/microbenchmarks.py, which counts the sectors
// that the L1s and the L2 read.
//
// The lanes of a warp read `lines` lines in one load, 128 / `lines` bytes of each, or one sector if
// that is less. Each `readers` blocks, `apart` blocks from one another, read the same; `split` of these
// groups read different sectors of the same lines. In each of its `trips` a warp waits for its load.
// Where `together` is 1, all blocks are resident and begin at one time; if `whole`, each has an SM.
// If `cached`, the L2 has what they read, else DRAM.
#include "device.cuh"

constexpr int WHOLE_SM = 150 * 1024;
constexpr u32 LANES = 32, LINE_WORDS = 32, SECTOR_WORDS = 8;
constexpr u64 WORDS = 1ull << 28, L2_WORDS = 1ull << 26;

struct Reading {
  u32 lines, readers, apart, split, trips, together;
};

__global__ void columns(const u32* data, u32* out, u32* meeting, Reading reading) {
  u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, of_line = LANES / reading.lines;
  u32 group = blockIdx.x / (reading.apart * reading.readers) * reading.apart + blockIdx.x % reading.apart;
  u32 row = (group / reading.split * reading.trips * (blockDim.x / LANES) + warp) * reading.lines + lane / of_line;
  const u32* from = data + u64(row) * LINE_WORDS + group % reading.split * SECTOR_WORDS + lane % of_line;
  if (reading.together) meet(meeting);
  u32 sum = 0;
#pragma unroll 1
  for (u32 trip = 0; trip < reading.trips; ++trip) {
    u32 value = *from;
    sum += value;
    bool any = __shfl_xor_sync(~0u, value == 0, 1);  // never: all are odd, but the warp waits for them
    from += u64(blockDim.x) * reading.lines + any;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main() {
  auto data = static_cast<const u32*>(random_memory(WORDS * sizeof(u32)));
  auto out = device_memory<u32>(1 << 21);
  auto meeting = device_memory<u32>(1);
  CHECK(cudaFuncSetAttribute(columns, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
  std::printf("kernel,blocks,threads,lines,readers,apart,split,trips,together,whole,cached\n");
  auto measure = [&](u32 blocks, u32 threads, Reading r, bool whole, bool cached) {
    CHECK(cudaMemset(meeting, 0, sizeof *meeting));
    u64 read = u64(blocks) / r.readers / r.split * r.trips * threads * r.lines;  // words
    read_all<<<1056, 256>>>(data + WORDS - L2_WORDS, L2_WORDS, out);  // leaves nothing else in the L2
    if (cached) read_all<<<1056, 256>>>(data, read, out);
    columns<<<blocks, threads, whole ? WHOLE_SM : 0>>>(data, out, meeting, r);
    finish();
    std::printf("columns,%u,%u,%u,%u,%u,%u,%u,%u,%d,%d\n", blocks, threads, r.lines, r.readers, r.apart, r.split,
                r.trips, r.together, whole, cached);
  };
  for (bool cached : {false, true}) {
    for (u32 blocks : {1024u, 2048u, 4096u})
      for (u32 lines : {8u, 32u})
        for (u32 apart : {1u, 4u})
          for (u32 split : {1u, 4u}) measure(blocks, 256, {lines, 8, apart, split, 1, 0}, false, cached);
    for (u32 lines : {8u, 32u}) {
      for (u32 readers : {2u, 4u, 8u, 16u})
        for (u32 split : {1u, 2u, 4u}) measure(128, 256, {lines, readers, 1, split, 32, 1}, true, cached);
      for (u32 readers : {4u, 8u})
        for (u32 split : {1u, 4u}) measure(1024, 256, {lines, readers, 1, split, 32, 1}, false, cached);
      for (u32 apart : {1u, 4u}) measure(1024, 256, {lines, 8, apart, 4, 1, 1}, false, cached);
    }
    for (u32 readers : {4u, 8u}) measure(1024, 256, {16, readers, 1, 1, 32, 1}, false, cached);
    measure(1024, 32, {32, 8, 1, 1, 32, 1}, false, cached);
    measure(4096, 256, {32, 2, 4, 4, 1, 0}, false, cached);
    measure(4096, 64, {32, 8, 4, 4, 1, 0}, false, cached);
  }
  return 0;
}
