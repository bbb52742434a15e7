// Stores of pieces of rows, as blocks of a product write their results, for benchmarks/microbenchmarks.py.
//
// On some SMs each, 8 warps write an area of 128 rows, row by row `piece` bytes at a time: a warp
// writes that many bytes of each of some rows, and then the next ones of the same rows. All SMs begin
// at the same time, and write their area `passes` times. `issue_clocks` are those until the last store
// is issued, `clocks` until a fence has seen all of them (medians over the SMs), `longest_clocks` those of
// the last SM.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common_clock.cuh"

constexpr int ROWS = 128, COLUMN_BYTES = 1024, WARPS = 8, ROWS_PER_WARP = ROWS / WARPS;
constexpr size_t PITCH = 16384;

struct Times {
  u64 issued, done;
};

template <class Word>
__device__ void write(unsigned char* area, int piece, u32 value) {
  int lanes = piece / int(sizeof(Word)), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int at_once = 32 / lanes;  // rows
  Word word;
  memset(&word, int(value), sizeof word);
#pragma unroll 1
  for (int first = 0; first < ROWS_PER_WARP; first += at_once) {
    unsigned char* to = area + (warp * ROWS_PER_WARP + first + lane / lanes) * PITCH + lane % lanes * sizeof(Word);
#pragma unroll 8
    for (int column = 0; column < COLUMN_BYTES; column += piece)
      *reinterpret_cast<Word*>(to + column) = word;
  }
}

__global__ void __launch_bounds__(WARPS * 32)
    row_stores(unsigned char* memory, Meeting* meeting, int piece, int word, int passes, Times* times) {
  __shared__ long long start;
  if (threadIdx.x == 0) {
    Common common = common_clock(meeting, gridDim.x);
    start = common.clock + (long long)(10.0 * LEAD_NS * common.clocks_per_ns);
  }
  __syncthreads();
  while ((long long)clock_of_sm() < start) {
  }
  // Tiles of 128 rows x 1024 bytes, side by side.
  unsigned char* area = memory + blockIdx.x / 16 * ROWS * PITCH + blockIdx.x % 16 * COLUMN_BYTES;
  for (int pass = 0; pass < passes; ++pass) {
    if (word == 4) write<u32>(area, piece, pass);
    if (word == 8) write<uint2>(area, piece, pass);
    if (word == 16) write<uint4>(area, piece, pass);
  }
  __syncthreads();
  long long issued = clock_of_sm();
  __threadfence();
  __syncthreads();
  long long done = clock_of_sm();
  if (threadIdx.x == 0) times[blockIdx.x] = {u64(issued - start), u64(done - start)};
}

int main() {
  int sms = multiprocessors();
  auto* memory = static_cast<unsigned char*>(random_memory(size_t(sms / 16 + 1) * ROWS * PITCH));
  auto* meeting = device_memory<Meeting>(1);
  auto* times = device_memory<Times>(sms);
  CHECK(cudaFuncSetAttribute(row_stores, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 * 1024));
  std::printf("sms,piece_bytes,word_bytes,passes,repeat,issue_clocks,clocks,longest_clocks\n");
  for (int used : {1, 2, 16, 66, sms})
    for (auto [piece, word] : {std::pair{32, 8}, {32, 4}, {64, 8}, {64, 16}, {128, 4}, {128, 16}, {256, 8}, {512, 16}})
      for (int passes : {1, 2, 4, 32})
        for (int repeat = 0; repeat < 4; ++repeat) {
          if (passes == 32 && used != sms && used != 1) continue;
          CHECK(cudaMemset(meeting, 0, sizeof *meeting));
          row_stores<<<used, WARPS * 32, 160 * 1024>>>(memory, meeting, piece, word, passes, times);
          finish();
          if (repeat == 0) continue;
          std::vector<Times> found(used);
          CHECK(cudaMemcpy(found.data(), times, used * sizeof(Times), cudaMemcpyDeviceToHost));
          std::vector<u64> issued, done;
          for (const Times& of : found) {
            issued.push_back(of.issued);
            done.push_back(of.done);
          }
          std::sort(issued.begin(), issued.end());
          std::sort(done.begin(), done.end());
          std::printf("%d,%d,%d,%d,%d,%llu,%llu,%llu\n", used, piece, word, passes, repeat,
                      issued[used / 2], done[used / 2], done[used - 1]);
        }
}
