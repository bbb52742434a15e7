// Stores to sectors that the same warp has just stored to, for benchmarks/microbenchmarks.py, which
// counts the sectors that leave the L1.
//
// In each of `rounds` a warp stores `stores` times to each of `sets` sets of `lines` lines, set after
// set: to `together` words of `word_bytes` in each of `sectors` sectors of a line, each time to the
// next ones of a sector. `stores` are made in a loop, with `gap` dependent FMAs behind each store;
// those of `bursts` follow one another without other instructions.
#include <algorithm>
#include <cstring>
#include <utility>

#include "device.cuh"

struct Pattern {
  int lines, sectors, together, word, stores, sets, gap, warps, sms, rounds;
  int ring;  // rounds after which a warp stores to the same lines again

  __host__ __device__ u64 words() const { return u64(sms) * warps * ring * lines * sets * 32; }
};

template <class Word>
__device__ __forceinline__ void store(u32* to, u32 value, bool active) {
  u32 values[sizeof(Word) / 4];
#pragma unroll
  for (u32 n = 0; n < sizeof(Word) / 4; ++n) values[n] = value;
  Word word;
  memcpy(&word, values, sizeof word);
  if (active)
    *reinterpret_cast<Word*>(to) = word;
}

// The word that a lane stores to first in a round.
__device__ __forceinline__ u32* first_word(u32* memory, const Pattern& p, int round) {
  u32 lane = threadIdx.x % 32, warp = blockIdx.x * p.warps + threadIdx.x / 32;
  u32 sector = lane / p.together, line = sector / p.sectors;
  u32 own = line * 32 + sector % p.sectors * 8 + lane % p.together * (p.word / 4);
  return memory + (u64(warp) * p.ring + round % p.ring) * p.lines * p.sets * 32 + own;
}

__device__ __forceinline__ bool stores_any(const Pattern& p) {
  return int(threadIdx.x % 32 / p.together / p.sectors) < p.lines;
}

template <class Word>
__global__ void stores(u32* memory, Pattern p, u32 value, float* result) {
  bool active = stores_any(p);
  u32 step = p.together * (p.word / 4), per_set = p.lines * 32;
  float x = value;
  for (int round = 0; round < p.rounds; ++round) {
    u32* first = first_word(memory, p, round);
#pragma unroll 1
    for (int n = 0, set = 0, k = 0; n < p.stores * p.sets; ++n) {
      store<Word>(first + set * per_set + k * step % 8, value, active);
#pragma unroll 4
      for (int count = 0; count < p.gap; ++count) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
      if (++set == p.sets) set = 0, ++k;
    }
  }
  if (x == 0.123f) result[0] = x;
}

// 8 words of each of `LINES * SECTORS` sectors.
template <int LINES, int SETS>
__global__ void bursts(u32* memory, Pattern p, u32 value, float*) {
  bool active = stores_any(p);
  for (int round = 0; round < p.rounds; ++round) {
    u32* first = first_word(memory, p, round);
    if (active) {
#pragma unroll
      for (int n = 0; n < 8 * SETS; ++n) first[n % SETS * LINES * 32 + n / SETS] = value;
    }
  }
}

__global__ void count_right(const u32* memory, u64 words, u32 value, u64* right) {
  u64 found = 0;
  for (u64 place = u64(blockIdx.x) * blockDim.x + threadIdx.x; place < words; place += u64(gridDim.x) * blockDim.x)
    found += memory[place] == value;
  atomicAdd(right, found);
}

u32* memory;
u64 memory_words;
u64* right_words;

void run(const char* name, void (*kernel)(u32*, Pattern, u32, float*), Pattern p) {
  static u32 value = 0x5EED;
  value = hashed(value, 1) | 1;
  int per_warp = 2048 / (p.warps * p.lines * p.sets);
  p.ring = per_warp < 2 ? 2 : per_warp > p.rounds ? p.rounds : per_warp;
  if (p.words() > memory_words) {
    std::fprintf(stderr, "a pattern needs too much memory\n");
    std::exit(1);
  }
  CHECK(cudaMemset(memory, 0, p.words() * 4));
  CHECK(cudaMemset(right_words, 0, sizeof(u64)));
  kernel<<<p.sms, p.warps * 32>>>(memory, p, value, reinterpret_cast<float*>(right_words + 1));
  finish();
  count_right<<<264, 512>>>(memory, p.words(), value, right_words);
  u64 right;
  CHECK(cudaMemcpy(&right, right_words, sizeof right, cudaMemcpyDeviceToHost));
  int of_sector = 32 / (p.together * p.word);
  u64 of_store = u64(p.lines) * p.sectors * p.together * (p.word / 4);
  u64 expected = of_store * std::min(p.stores, of_sector) * p.sets * p.sms * p.warps * p.ring;
  if (right != expected) {
    std::fprintf(stderr, "%llu words are right, of %llu\n", right, expected);
    std::exit(1);
  }
  std::printf("%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d\n", name, p.lines, p.sectors, p.together, p.word, p.stores, p.sets,
              p.gap, p.warps, p.sms, p.rounds);
}

template <int LINES, int SETS>
void burst(int warps, int sms) {
  run("bursts", bursts<LINES, SETS>, {LINES, LINES > 8 ? 1 : 4, 1, 4, 8, SETS, 0, warps, sms, 256});
}

int main() {
  int sms = multiprocessors();
  memory_words = u64(sms) * 4096 * 32;
  memory = device_memory<u32>(memory_words);
  right_words = device_memory<u64>(2);
  std::printf("kernel,lines,sectors,together,word_bytes,stores,sets,gap,warps,sms,rounds\n");
  // How many lines wait: sets of lines by turns, and several warps.
  for (int used : {1, sms})
    for (int warps : {1, 2, 3, 4, 8, 16}) {
      burst<1, 1>(warps, used), burst<2, 1>(warps, used), burst<4, 1>(warps, used), burst<8, 1>(warps, used);
      burst<4, 2>(warps, used), burst<4, 3>(warps, used), burst<4, 4>(warps, used), burst<4, 5>(warps, used);
      burst<4, 6>(warps, used), burst<4, 7>(warps, used), burst<4, 8>(warps, used), burst<8, 2>(warps, used);
      burst<8, 3>(warps, used), burst<8, 4>(warps, used), burst<32, 1>(warps, used), burst<16, 1>(warps, used);
    }
  // By the time between stores.
  for (int warps : {1, 2, 4, 8, 16})
    for (int gap : {0, 4, 16, 64}) run("stores", stores<u32>, {8, 4, 1, 4, 8, 1, gap, warps, sms, 64});
  // What a sector costs that leaves, by the bytes stored to it, and how many of its line leave.
  for (int used : {1, 16, 66, sms})
    for (auto [together, word] : {std::pair{1, 4}, {1, 8}, {1, 16}, {2, 16}, {8, 4}})
      for (int sectors : {1, 2, 4}) {
        int lines = 32 / together / sectors;
        auto* kernel = word == 4 ? stores<u32> : word == 8 ? stores<uint2> : stores<uint4>;
        run("stores", kernel, {lines > 8 ? 8 : lines, sectors, together, word, 1, 4, 0, 32, used, 64});
      }
}
