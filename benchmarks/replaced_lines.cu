// Which lines an L1 keeps: the only warp of the GPU loads or stores whole lines one by one, and a
// load that takes less than 120 clocks has hit. For benchmarks/microbenchmarks.py.
//
// A row is a part of a launch: how many of its loads hit. The L1 is empty when a launch begins.
// `again`: `lines` lines that follow one another are read four times. `random`: lines at random,
// three times. `rounds`: other lines in each round, which are read `reads` times, the last ones
// twice at least. `full`: `lines` lines are read `reads` times, then `others` once; these are read
// again, or with `old` the first ones. `visited`: one line again and again, and `others` lines in
// between that are read once. `beside`: `lines` lines in turn and, behind one load of `every`, one
// line that comes once, by a load, with `stores` by a store.
#include <algorithm>
#include <random>
#include <vector>

#include "device.cuh"

constexpr u32 STORE = 1u << 31, HIT_CLOCKS = 120, STORE_CLOCKS = 600;
constexpr u32 LINES = 1u << 22, WORDS = 32, MOST = 24576;  // lines of memory; accesses of a launch
constexpr u32 ELSEWHERE = 1u << 20;

__global__ void follow(u32* lines, const u32* script, u32 count, u32* hits) {
  __shared__ u32 kept[32];
  u32 lane = threadIdx.x, bits = 0;
  u32 place = u32(__cvta_generic_to_shared(kept + lane));
  for (u32 i = 0; i < count; ++i) {
    u32 word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(script + i) : "memory");
    u32* at = lines + u64(word & ~STORE) * WORDS + lane;
    u32 begin = clock_low();
    if (word & STORE) {
      *at = i;
      while (clock_low() - begin < STORE_CLOCKS) {
      }
    } else {
      u32 value;
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
      // The store waits for the value, and the clock is read behind it.
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
      bits |= u32(clock_low() - begin < HIT_CLOCKS) << i % 32;
    }
    if (i % 32 == 31 || i + 1 == count) {
      if (lane == 0)
        atomicOr(hits + i / 32, bits);
      bits = 0;
    }
  }
}

using Script = std::vector<u32>;
u32 *lines, *script, *hits;

struct Case {
  const char* name;
  u32 lines, reads, others, every, old, stores;
};

void run(const Case& of, const Script& words, u32 part) {
  CHECK(cudaMemcpy(script, words.data(), words.size() * sizeof(u32), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(hits, 0, MOST / 8));
  follow<<<1, 32>>>(lines, script, u32(words.size()), hits);
  finish();
  std::vector<u32> found(MOST / 32);
  CHECK(cudaMemcpy(found.data(), hits, MOST / 8, cudaMemcpyDeviceToHost));
  for (u32 first = 0; first < words.size(); first += part) {
    u32 loads = 0, hit = 0;
    for (u32 i = first; i < std::min(first + part, u32(words.size())); ++i) {
      loads += !(words[i] & STORE);
      hit += found[i / 32] >> i % 32 & 1;
    }
    std::printf("%s,%u,%u,%u,%u,%u,%u,%u,%u,%u\n", of.name, of.lines, of.reads, of.others,
                of.every, of.old, of.stores, first / part, loads, hit);
  }
}

void range(Script& to, u32 first, u32 count) {
  for (u32 i = 0; i < count; ++i) to.push_back(first + i);
}

int main() {
  lines = static_cast<u32*>(random_memory(u64(LINES) * WORDS * sizeof(u32)));
  script = device_memory<u32>(MOST);
  hits = device_memory<u32>(MOST / 32);
  std::printf("case,lines,reads,others,every,old,stores,part,loads,hits\n");
  for (u32 n : {1024, 1536, 1760, 1792, 1800, 1824, 1856, 1920, 1984, 2048, 2304}) {
    Script words;
    for (int pass = 0; pass < 4; ++pass) range(words, 4096, n);
    run({"again", n, 4}, words, n);
  }
  for (u32 n : {64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072}) {
    std::mt19937 draw(1);
    Script each, words;
    std::vector<bool> drawn(LINES);
    while (each.size() < n) {
      u32 line = draw() % LINES;
      if (!drawn[line])
        each.push_back(line);
      drawn[line] = true;
    }
    for (int pass = 0; pass < 3; ++pass) words.insert(words.end(), each.begin(), each.end());
    run({"random", n, 3}, words, n);
  }
  for (u32 n : {128, 256, 512, 1024})
    for (u32 reads : {1, 2, 3}) {
      Script words;
      u32 rounds = std::min(MOST / (n * reads) - 1, 4096 / n + 2);
      for (u32 round = 0; round < rounds; ++round)
        for (u32 pass = 0; pass < (round + 1 == rounds ? std::max(reads, 2u) : reads); ++pass)
          range(words, round * 132 * n, n);
      run({"rounds", n, reads}, words, n);
    }
  for (u32 n : {1024, 1792, 2560})
    for (u32 reads : {1, 2})
      for (u32 others : {1, 8, 32, 128, 512, 1024, 1792})
        for (u32 old : {0, 1}) {
          Script words;
          for (u32 pass = 0; pass < reads; ++pass) range(words, 8192, n);
          range(words, ELSEWHERE, others);
          range(words, old ? 8192 : ELSEWHERE, old ? n : others);
          run({"full", n, reads, others, 0, old}, words, n * reads + others);
        }
  for (u32 others : {1, 16, 128, 512, 1024, 1536, 1700}) {
    Script words;
    u32 next = 8192;
    while (words.size() + others + 1 < 16000) {
      words.push_back(5);
      range(words, next, others);
      next += others;
    }
    run({"visited", 1, 0, others}, words, MOST);
  }
  for (u32 n : {256, 1024, 1536})
    for (u32 every : {1, 2, 4})
      for (u32 stores : {0, 1}) {
        Script words;
        u32 next = ELSEWHERE;
        for (u32 i = 0; words.size() < 18000; ++i) {
          words.push_back(8192 + i % n);
          if (i % every == 0 && words.size() < 18000)
            words.push_back(next++ | (stores ? STORE : 0));
        }
        run({"beside", n, 0, 0, every, 0, stores}, words, MOST);
      }
  return 0;
}
