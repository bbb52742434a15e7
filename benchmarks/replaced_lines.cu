// Which lines an L1 replaces: one warp makes accesses one by one, and the time of each load tells
// whether the L1 had what it needs.
//
// The accesses are in constant memory and the hits in shared memory, so that nothing else uses the
// L1. Columns: `carveout_percent`: how much of the largest shared memory is asked for, of which the
// driver gives more: 6% are 32 KiB, 13% 64, 27% 100, 42% 164, 57% 196 and 71% 228 KiB; `access`: a kind of access, which a third of those
// of `set` are, or `ld`; `sectors`: whether these are to a sector of a line each; `accesses` to
// lines that compete for one set, as letters: `B` is a plain load where `b` is one of that kind, and
// a figure names the sector; or numbers of lines; `hits`: a figure for each access of `set`, of
// which those of stores mean nothing, and a number for each pass of the others:
// `lines`: no accesses, but the numbers of lines of one set, which are their addresses over 128.
// `again`, `random`: that many lines, adjacent or not, are read four times.
// `rounds`: that many adjacent lines are read so many times, and then others, up to 12 rounds.
// `full`: that many adjacent lines are read so many times, then others once, then how many of the
// first and of the others are still there.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device.cuh"

enum Kind : u32 {
  LOAD, CONSTANT_LOAD, STORE, STORE_CG, COPY, LOAD_ONCE, LOAD_FIRST, STORE_ONCE, LOAD_LAST,
  LOAD_UNCHANGED, LOAD_APART, LOAD_CG, LOAD_RELAXED, LOAD_VOLATILE, COPY_CG, REDUCE, ATOMIC, KINDS
};
const char* const NAMES[] = {
    "ld", "ld.nc", "st", "st.cg", "cp.async.ca", "ld.cs", "ld.L1::evict_first", "st.cs",
    "ld.L1::evict_last", "ld.L1::evict_unchanged", "ld.L1::no_allocate", "ld.cg",
    "ld.relaxed.gpu", "ld.volatile", "cp.async.cg", "red.add", "atom.add"};
constexpr u32 LINE_BITS = 25, KIND_BITS = 5;  // of an access; above: its sector plus 1
constexpr u32 MOST = 15360, LINES = 1u << LINE_BITS, WAYS = 4;  // 4 GiB of lines
constexpr u32 MOST_HIT_CLOCKS = 150, STORE_CLOCKS = 1200;
constexpr u32 CARVEOUTS[][2] = {{6, 32}, {13, 64}, {27, 100}, {42, 164}, {57, 196}, {71, 228}};
constexpr u32 SETS_OF_LINES = 16;
constexpr int SEQUENCES = 20, LENGTH = 40;
__constant__ u32 accesses_[MOST];

#define LOADED(OPCODE)                                                                          \
  begin = clock_low();                                                                          \
  asm volatile(OPCODE " %0, [%1];" : "=r"(value) : "l"(at) : "memory");                         \
  break
#define STORED(OPCODE)                                                                          \
  begin = clock_low();                                                                          \
  asm volatile(OPCODE " [%0], %1;" ::"l"(at), "r"(i) : "memory");                               \
  while (clock_low() - begin < STORE_CLOCKS) {                                                  \
  }                                                                                             \
  break
#define COPIED(OPCODE, BYTES, TO)                                                               \
  asm volatile(OPCODE " [%0], [%1], " BYTES ";\n\tcp.async.wait_all;" ::"r"(TO), "l"(at)       \
               : "memory");                                                                     \
  break

__global__ void follow(u32* lines, u32 count, u32* hits) {
  __shared__ u32 kept[32], found[MOST / 32];
  __shared__ alignas(16) u32 copied[128];
  u32 lane = threadIdx.x, bits = 0, place = u32(__cvta_generic_to_shared(kept + lane));
  u32 to = u32(__cvta_generic_to_shared(copied + lane)), to_16 = to + 12 * lane;
  for (u32 i = 0; i < count; ++i) {
    u32 access = accesses_[i], kind = access >> LINE_BITS & (1u << KIND_BITS) - 1;
    u32 sector = access >> LINE_BITS + KIND_BITS, value = 0, begin = 0;
    u32* at = lines + u64(access & LINES - 1) * 32;
    at += kind == COPY_CG ? 4 * (lane & 7) : sector ? 8 * (sector - 1) + (lane & 7) : lane;
    switch (kind) {
      case LOAD: LOADED("ld.weak.global.u32");
      case CONSTANT_LOAD: LOADED("ld.global.nc.u32");
      case LOAD_ONCE: LOADED("ld.global.cs.u32");
      case LOAD_FIRST: LOADED("ld.global.L1::evict_first.u32");
      case LOAD_LAST: LOADED("ld.global.L1::evict_last.u32");
      case LOAD_UNCHANGED: LOADED("ld.global.L1::evict_unchanged.u32");
      case LOAD_APART: LOADED("ld.global.L1::no_allocate.u32");
      case LOAD_CG: LOADED("ld.global.cg.u32");
      case LOAD_RELAXED: LOADED("ld.relaxed.gpu.global.u32");
      case LOAD_VOLATILE: LOADED("ld.volatile.global.u32");
      case STORE: STORED("st.global.u32");
      case STORE_CG: STORED("st.global.cg.u32");
      case STORE_ONCE: STORED("st.global.cs.u32");
      case REDUCE: STORED("red.global.add.u32");
      case ATOMIC:
        asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(value) : "l"(at), "r"(i) : "memory");
        break;
      case COPY: COPIED("cp.async.ca.shared.global", "4", to);
      case COPY_CG: COPIED("cp.async.cg.shared.global", "16", to_16);
    }
    // The store waits for the value, and the clock is read behind it.
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
    bits |= u32(clock_low() - begin < MOST_HIT_CLOCKS) << i % 32;
    if (i % 32 == 31 || i + 1 == count) {
      if (lane == 0) found[i / 32] = bits;
      bits = 0;
    }
  }
  __syncwarp();
  for (u32 i = lane; i < (count + 31) / 32; i += 32) hits[i] = found[i];
}

using List = std::vector<u32>;
u32 *lines_, *hits_;

std::vector<bool> hits_of(const List& list) {
  CHECK(cudaMemcpyToSymbol(accesses_, list.data(), list.size() * sizeof(u32)));
  follow<<<1, 32>>>(lines_, u32(list.size()), hits_);
  finish();
  List words((list.size() + 31) / 32);
  CHECK(cudaMemcpy(words.data(), hits_, words.size() * sizeof(u32), cudaMemcpyDeviceToHost));
  std::vector<bool> hits(list.size());
  for (size_t i = 0; i < list.size(); ++i) hits[i] = words[i / 32] >> i % 32 & 1;
  return hits;
}

void set_carveout(u32 percent) {
  CHECK(cudaFuncSetAttribute(follow, cudaFuncAttributePreferredSharedMemoryCarveout, int(percent)));
}

void adjacent(List& to, u32 first, u32 count, Kind kind = LOAD) {
  for (u32 i = 0; i < count; ++i) to.push_back(first + i | kind << LINE_BITS);
}

List random_lines(u32 count, u32 seed) {
  std::mt19937 draw(seed);
  List drawn;
  std::vector<bool> used(LINES);
  while (drawn.size() < count) {
    u32 line = draw() % LINES;
    if (!used[line]) drawn.push_back(line);
    used[line] = true;
  }
  return drawn;
}

void print_passes(const char* experiment, u32 carveout, u32 lines, u32 reads, u32 others,
                  const List& list, const List& passes) {
  std::vector<bool> hits = hits_of(list);
  auto begin = hits.end() - std::accumulate(passes.begin(), passes.end(), 0);
  std::printf("%s,%u,%u,%u,%u,ld,0,,", experiment, carveout, lines, reads, others);
  for (size_t i = 0; i < passes.size(); begin += passes[i++])
    std::printf(i ? " %d" : "%d", int(std::count(begin, begin + passes[i], true)));
  std::printf("\n");
}

void measure_all_sets(u32 carveout, u32 kib) {
  set_carveout(carveout);
  u32 room = (256 - kib) * 8, adjacent_at = 8192, others_at = 1 << 20;
  for (int more : {-128, -64, -32, 0, 64}) {
    u32 lines = room + more, reads = std::min(4u, MOST / lines);
    List list;
    for (u32 read = 0; read < reads; ++read) adjacent(list, adjacent_at, lines);
    print_passes("again", carveout, lines, reads, 0, list, List(reads, lines));
  }
  for (u32 lines : {256u, 512u, 768u, 1024u, 1536u, 2048u}) {
    List drawn = random_lines(lines, 3), list;
    for (int read = 0; read < 4; ++read) list.insert(list.end(), drawn.begin(), drawn.end());
    print_passes("random", carveout, lines, 4, 0, list, List(4, lines));
  }
  for (u32 lines : {256u, 512u, 1024u})
    for (u32 reads : {2u, 3u}) {
      List list;
      u32 rounds = std::min(MOST / (lines * reads), 12u);
      for (u32 i = 0; i < rounds * reads; ++i) adjacent(list, adjacent_at + i / reads * lines, lines);
      print_passes("rounds", carveout, lines, reads, 0, list, List(rounds * reads, lines));
    }
  for (u32 lines : {room * 3 / 4, room})
    for (u32 reads : {1u, 2u, 3u})
      for (u32 others : {64u, 256u, 512u}) {
        List list;
        for (u32 read = 0; read < reads; ++read) adjacent(list, adjacent_at, lines);
        adjacent(list, others_at, others);
        if (list.size() + lines + others > MOST) continue;
        adjacent(list, adjacent_at, lines, LOAD_APART);
        adjacent(list, others_at, others, LOAD_APART);
        print_passes("full", carveout, lines, reads, others, list, {lines, others});
      }
}

// Whether a line is lost when others are read behind it.
bool is_lost(u32 line, const List& first, const List& others = {}) {
  List list{line};
  list.insert(list.end(), first.begin(), first.end());
  list.insert(list.end(), others.begin(), others.end());
  list.push_back(line | LOAD_APART << LINE_BITS);
  return !hits_of(list).back();
}

// As few lines as take the place of another one.
List reduced(u32 line, List from) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (u32 parts : {std::min(6u, u32(from.size())), u32(from.size())})
      for (u32 part = 0; part < parts && !smaller; ++part) {
        List rest;
        for (u32 i = 0; i < from.size(); ++i)
          if (i * parts / from.size() != part) rest.push_back(from[i]);
        if (is_lost(line, rest)) from = rest, smaller = true;
      }
  }
  return from;
}

// Eight lines of one set: those that take the place of one, and such as do beside all but one.
List lines_of_one_set(u32 line, std::mt19937& draw) {
  List found{line};
  while (found.size() == 1) {
    List drawn = random_lines(1500, draw());
    drawn.erase(std::remove(drawn.begin(), drawn.end(), line), drawn.end());
    if (!is_lost(line, drawn)) continue;
    drawn = reduced(line, drawn);
    if (drawn.size() == WAYS) found.insert(found.end(), drawn.begin(), drawn.end());
  }
  List most(found.begin() + 1, found.end() - 1);
  while (found.size() < 8) {
    List drawn = random_lines(256, draw());
    bool is_new = std::none_of(drawn.begin(), drawn.end(), [&](u32 each) {
      return std::find(found.begin(), found.end(), each) != found.end();
    });
    if (!is_new || !is_lost(line, most, drawn)) continue;
    while (drawn.size() > 1) {
      List half(drawn.begin(), drawn.begin() + drawn.size() / 2);
      List other(drawn.begin() + drawn.size() / 2, drawn.end());
      drawn = is_lost(line, most, half) ? half : other;
    }
    if (is_lost(line, most, drawn)) found.push_back(drawn[0]);
  }
  return found;
}

void print_lines(const List& set) {
  std::printf("lines,6,%zu,0,0,,0,", set.size());
  for (size_t i = 0; i < set.size(); ++i)
    std::printf(i ? " %llu" : "%llu", u64(lines_) / 128 + set[i]);
  std::printf(",\n");
}

void measure_one_set(const List& set, Kind kind, u32 sectors, std::mt19937& draw) {
  for (u32 sequence = 0; sequence < SEQUENCES; ++sequence) {
    u32 lines = 5 + sequence % 4;
    List list;
    std::string names;
    for (int i = 0; i < LENGTH; ++i) {
      u32 a = draw() % lines, b = draw() % lines, line = sequence % 2 ? std::min(a, b) : a;
      u32 made = draw() % 3 ? LOAD : kind, sector = sectors ? 1 + draw() % 3 : 0;
      list.push_back(set[line] | made << LINE_BITS | sector << LINE_BITS + KIND_BITS);
      names += char((made == LOAD ? 'A' : 'a') + line);
      if (sectors) names += char('0' + sector - 1);
    }
    std::string hits;
    for (bool hit : hits_of(list)) hits += char('0' + hit);
    std::printf("set,6,%u,0,0,%s,%u,%s,%s\n", lines, NAMES[kind], sectors, names.c_str(), hits.c_str());
  }
}

int main() {
  lines_ = static_cast<u32*>(random_memory(u64(LINES) * 128));
  hits_ = device_memory<u32>(MOST / 32);
  std::printf("experiment,carveout_percent,lines,reads,others,access,sectors,accesses,hits\n");
  for (const u32* each : CARVEOUTS) measure_all_sets(each[0], each[1]);
  set_carveout(CARVEOUTS[0][0]);
  std::mt19937 draw(23);
  for (u32 i = 1; i < SETS_OF_LINES; ++i) print_lines(lines_of_one_set(1000003 * i, draw));
  List set = lines_of_one_set(1000003 * SETS_OF_LINES, draw);
  print_lines(set);
  for (u32 kind = 0; kind < KINDS; ++kind)
    for (u32 sectors : {0u, 1u})
      if (!sectors || kind == LOAD || kind == STORE) measure_one_set(set, Kind(kind), sectors, draw);
  return 0;
}
