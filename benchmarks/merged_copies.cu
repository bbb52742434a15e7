// Which reads of bulk copies the L2 request coalescer merges, for benchmarks/microbenchmarks.py.
//
//     merged_copies             runs every case once, in the order that it prints
//     ncu -k regex:^(timed|rings)$ ... merged_copies
//
// `timed`: SMs copy the same box at chosen distances in time. `rings`: on each SM a thread copies
// boxes of two matrices to a ring of stages, as in a product, and another one takes each stage for
// `work` clocks. SMs with the same row read the same boxes of the first matrix, those with the same
// column the same ones of the second. Of grids of
// several waves `who` = readers / waves: so many neighbours in launch order read the same boxes of the
// first matrix. Placements of
// blocks are printed as messages.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "../kernels/hopper.cuh"
#include "clusters.cuh"
#include "common_clock.cuh"

constexpr int MOST_SMS = 160, MOST_WAVES = 8, MOST_STAGES = 8, MARKS = 33;
constexpr u32 LINE_WORDS = 32, A_ROWS = 128, B_ROWS = 64;  // of a box; a box of B is loaded 4 times
constexpr size_t SHARED_BYTES = 208 * 1024;
constexpr u32 SLABS = 256;  // boxes of a row of each matrix: the pitch is 32 KiB

extern __shared__ __align__(1024) unsigned char boxes[];

struct Roles {  // by multiprocessor, or by block where `readers` is not 0
  int16_t row[MOST_SMS], column[MOST_SMS];
  u32 readers;
};

// In each round, the SM of rank r copies the round's box r * delay clocks after the round began.
__global__ void __launch_bounds__(32)
    timed(const __grid_constant__ CUtensorMap map, Meeting* meeting, Roles roles, u32 readers,
          int delay, int period, u32 rounds, u32 rows, int warm) {
  __shared__ __align__(8) u64 full;
  if (threadIdx.x) return;
  int rank = roles.row[multiprocessor()];
  if (rank < 0) {  // keep the SM, so that no second block starts on it
    u64 begin = clock_of_sm();
    while (clock_of_sm() - begin < 100000) {
    }
    return;
  }
  make_barrier(shared_address(&full), 1);
  publish_barriers();
  u32 barrier = shared_address(&full), parity = 0, to = shared_address(boxes);
  if (rank == 0 && warm)
    for (u32 round = 0; round < rounds; ++round, parity ^= 1) {
      arrive_expecting(barrier, rows * 128);
      load_box(to, &map, round % SLABS * LINE_WORDS, round / SLABS * rows, barrier);
      wait(barrier, parity);
    }
  Common begin = common_clock(meeting, readers);
  long long next = begin.clock + (long long)(10.0 * LEAD_NS * begin.clocks_per_ns) + rank * delay;
  for (u32 round = 0; round < rounds; ++round, next += period, parity ^= 1) {
    while ((long long)clock_of_sm() < next) {
    }
    arrive_expecting(barrier, rows * 128);
    load_box(to, &map, round % SLABS * LINE_WORDS, round / SLABS * rows, barrier);
    wait(barrier, parity);
  }
}

struct Ring {
  u32 stages, work, slabs, a_slabs, b_slabs, tile, stored;
};

// The thread of warp 1 takes stages; all warps store `stored` words each after `tile` slabs.
__global__ void __launch_bounds__(160)
    rings(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
          Roles roles, Ring ring, u64* marks, float4* stores) {
  __shared__ __align__(8) u64 full[MOST_STAGES], empty[MOST_STAGES];
  u32 sm = multiprocessor(), row = roles.row[sm], column = roles.column[sm];
  if (roles.readers) row = blockIdx.x / roles.readers % 132, column = blockIdx.x % 132;
  constexpr u32 A_BYTES = A_ROWS * 128, B_BYTES = B_ROWS * 128, BYTES = A_BYTES + 4 * B_BYTES;
  if (threadIdx.x == 0) {
    for (u32 stage = 0; stage < ring.stages; ++stage) {
      make_barrier(shared_address(full + stage), 1);
      make_barrier(shared_address(empty + stage), 1);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 128) {
    for (u32 slab = 0; slab < ring.slabs; ++slab) {
      u32 stage = slab % ring.stages, turn = slab / ring.stages;
      u32 barrier = shared_address(full + stage), to = shared_address(boxes) + stage * BYTES;
      wait(shared_address(empty + stage), turn % 2 ^ 1);
      arrive_expecting(barrier, BYTES);
      u32 a = slab % ring.a_slabs, b = slab % ring.b_slabs;
      load_box(to, &A, a * LINE_WORDS, row * A_ROWS, barrier);
      for (u32 box = 0; box < 4; ++box)
        load_box(to + A_BYTES + box * B_BYTES, &B, b * LINE_WORDS, (column * 4 + box) * B_ROWS,
                 barrier);
    }
    return;
  }
  if (threadIdx.x >= 128) return;
  u64 until = clock_of_sm();
  u32 every = max(ring.slabs / (MARKS - 1), 1);
  for (u32 slab = 0; slab < ring.slabs; ++slab) {
    u32 stage = slab % ring.stages, turn = slab / ring.stages;
    wait(shared_address(full + stage), turn % 2);
    u64 now = clock_of_sm();
    if (threadIdx.x == 0 && slab % every == 0) marks[sm * MARKS + slab / every] = now;
    // Products follow one another without a gap where the stage is there in time.
    until = (now > until ? now : until) + ring.work;
    while (clock_of_sm() < until) {
    }
    meet(1, 128);
    if (threadIdx.x == 0) arrive(shared_address(empty + stage));
    if (ring.tile && slab % ring.tile == ring.tile - 1) {
      float4* to = stores + u64(sm) * ring.stored * 128;
      for (u32 i = 0; i < ring.stored; ++i) to[i * 128 + threadIdx.x] = make_float4(slab, i, 0, 0);
      u64 stored = clock_of_sm();
      until = stored > until ? stored : until;
    }
  }
  if (threadIdx.x == 0) marks[sm * MARKS + MARKS - 1] = clock_of_sm();
}

struct Place {
  u64 start, end;
  u32 sm;
};

__global__ void places(Place* out, u32 clocks, int clustered) {
  if (threadIdx.x) return;
  u64 start = nanoseconds(), begin = clock_of_sm();
  while (clock_of_sm() - begin < clocks) {
  }
  out[blockIdx.x] = {start, nanoseconds(), multiprocessor()};
}

struct Groups {
  std::vector<int> parent;
  explicit Groups(int count) : parent(count) { std::iota(parent.begin(), parent.end(), 0); }
  int root(int i) const {
    while (parent[i] != i) i = parent[i];
    return i;
  }
};

static Place* place_out;

static std::vector<Place> placed(int size, int clusters, size_t bytes, u32 clocks) {
  std::vector<Place> found(size_t(size) * clusters);
  ClusterKernel kernel(reinterpret_cast<void*>(places), size ? size : 1, 32, bytes);
  int blocks = (size ? size : 1) * clusters;
  found.resize(blocks);
  if (size) {
    int clustered = 1;
    void* arguments[] = {&place_out, &clocks, &clustered};
    kernel.run(clusters, arguments);
  } else {
    places<<<blocks, 32, bytes>>>(place_out, clocks, 0);
    finish();
  }
  CHECK(cudaMemcpy(found.data(), place_out, blocks * sizeof(Place), cudaMemcpyDeviceToHost));
  return found;
}

static void print_places(const char* name, int size, int clusters, size_t bytes, u32 clocks) {
  auto found = placed(size, clusters, bytes, clocks);
  u64 first = ~0ull;
  for (auto& place : found) first = std::min(first, place.start);
  std::fprintf(stderr, "places,%s,%d:", name, size);
  for (auto& place : found)
    std::fprintf(stderr, " %u@%llu", place.sm, (unsigned long long)(place.start - first));
  std::fprintf(stderr, "\n");
}

static CUtensorMap map_of(void* memory, u64 rows, u32 box_rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                         cudaEnableDefault, &found));
  CUtensorMap map;
  cuuint64_t sizes[] = {SLABS * LINE_WORDS, rows}, pitches[] = {SLABS * LINE_WORDS * 4};
  cuuint32_t box[] = {LINE_WORDS, box_rows}, strides[] = {1, 1};
  CUresult done = reinterpret_cast<Encode>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, memory, sizes, pitches, box, strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (done != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(done));
    std::exit(1);
  }
  return map;
}

static u32 *first_matrix, *second_matrix;
static Meeting* meeting;
static u64* marks;
static float4* stores;
static int sms;
static std::vector<std::vector<int>> gpcs;
static std::vector<int> gpc_of;

static void run_timed(const char* who, const std::vector<int>& members, int delay, u32 rows,
                      bool warm) {
  Roles roles{};
  std::fill(roles.row, roles.row + MOST_SMS, int16_t(-1));
  for (size_t i = 0; i < members.size(); ++i) roles.row[members[i]] = int16_t(i);
  u32 rounds = 64;
  int period = 4000 + int(rows) * 16 + delay * int(members.size());
  CHECK(cudaMemset(meeting, 0, sizeof *meeting));
  CUtensorMap map = map_of(first_matrix, 132 * 128, rows);
  timed<<<sms, 32, SHARED_BYTES>>>(map, meeting, roles, u32(members.size()), delay, period, rounds,
                                   rows, warm);
  finish();
  std::printf("timed,%s,%zu,%u,%d,%d,%u,,,,,,\n", who, members.size(), rows, delay, int(warm),
              rounds * rows * 4);
  std::fflush(stdout);
}

// `shared` names how rows and columns are given to SMs. The sectors are those of all SMs; the marks
// give how far the SMs of a GPC are apart, in clocks, at the last slab and in the middle.
static void run_rings(const char* who, const Roles& roles, Ring ring, int waves = 1) {
  CUtensorMap a = map_of(first_matrix, 132 * A_ROWS, A_ROWS);
  CUtensorMap b = map_of(second_matrix, 132 * 4 * B_ROWS, B_ROWS);
  CHECK(cudaMemset(marks, 0, MOST_SMS * MARKS * sizeof(u64)));
  rings<<<sms * waves, 160, SHARED_BYTES>>>(a, b, roles, ring, marks, stores);
  finish();
  std::vector<u64> found(MOST_SMS * MARKS);
  CHECK(cudaMemcpy(found.data(), marks, found.size() * sizeof(u64), cudaMemcpyDeviceToHost));
  // The spread of the slab's time in the largest GPC, at marks 1, 4, 16 and 32.
  std::printf("rings,%s,%u,%u,%u,%u,%u,%u,%u", who, ring.stages, ring.work, ring.slabs,
              ring.a_slabs, ring.b_slabs, ring.tile, ring.stored);
  for (int mark : {1, 8, 16, 31}) {
    double spread = 0;
    int counted = 0;
    for (auto& gpc : gpcs) {
      if (gpc.size() < 16) continue;
      std::vector<u64> times;
      for (int sm : gpc) times.push_back(found[sm * MARKS + mark]);
      std::sort(times.begin(), times.end());
      spread += double(times[times.size() * 3 / 4] - times[times.size() / 4]);
      ++counted;
    }
    std::printf(",%.0f", counted ? spread / counted : 0.0);
  }
  std::printf("\n");
  std::fflush(stdout);
}

int main() {
  sms = std::min(multiprocessors(), 132);
  place_out = device_memory<Place>(8192);
  meeting = device_memory<Meeting>(1);
  marks = device_memory<u64>(MOST_SMS * MARKS);
  stores = device_memory<float4>(size_t(MOST_SMS) * 128 * 128);
  first_matrix = static_cast<u32*>(random_memory(132ull * A_ROWS * SLABS * 128));
  second_matrix = static_cast<u32*>(random_memory(132ull * 4 * B_ROWS * SLABS * 128));
  ClusterKernel(reinterpret_cast<void*>(places), 1, 32, SHARED_BYTES).allow();
  CHECK(cudaFuncSetAttribute(timed, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
  CHECK(cudaFuncSetAttribute(rings, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));

  Groups groups(sms);
  for (int round = 0; round < 4; ++round)
    for (int size : {16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2}) {
      ClusterKernel launched(reinterpret_cast<void*>(places), size, 32, SHARED_BYTES);
      int clusters = launched.most_active() * 2;
      if (clusters == 0) continue;
      auto found = placed(size, clusters, SHARED_BYTES, 50000);
      for (size_t block = 0; block < found.size(); ++block)
        groups.parent[groups.root(found[block].sm)] = groups.root(found[block / size * size].sm);
    }
  std::map<int, std::vector<int>> members;
  for (int sm = 0; sm < sms; ++sm) members[groups.root(sm)].push_back(sm);
  gpc_of.resize(sms);
  for (auto& each : members) {
    for (int sm : each.second) gpc_of[sm] = int(gpcs.size());
    gpcs.push_back(each.second);
  }
  std::sort(gpcs.begin(), gpcs.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (size_t g = 0; g < gpcs.size(); ++g) {
    std::fprintf(stderr, "GPC of %zu SMs:", gpcs[g].size());
    for (int sm : gpcs[g]) {
      gpc_of[sm] = int(g);
      std::fprintf(stderr, " %d", sm);
    }
    std::fprintf(stderr, "\n");
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    print_places("plain one on an SM", 0, sms, SHARED_BYTES, 40000);
    print_places("plain two on an SM", 0, 2 * sms, 100 * 1024, 40000);
    print_places("plain four waves", 0, 4 * sms, SHARED_BYTES, 40000);
    for (int size : {1, 2, 4}) print_places("clusters", size, sms / size, SHARED_BYTES, 40000);
    print_places("clusters, three waves", 2, 3 * sms / 2, SHARED_BYTES, 40000);
  }

  std::printf("kernel,who,readers_or_stages,rows_or_work,delay_or_slabs,warm_or_a_slabs,sectors_or_b_slabs,"
      "tile,stored,spread_1,spread_8,spread_16,spread_31\n");
  const auto& one = gpcs[0];
  std::vector<int> apart;  // no two of one TPC
  for (int sm : one)
    if (sm % 2 == 0) apart.push_back(sm);
  for (bool warm : {true, false})
    for (int delay : {0, 30, 60, 100, 150, 200, 300, 400, 600, 800, 1200}) {
      run_timed("one TPC", {one[0], one[0] ^ 1}, delay, 64, warm);
      run_timed("one GPC", {apart[0], apart[1]}, delay, 64, warm);
      run_timed("one GPC", {apart.begin(), apart.begin() + 4}, delay, 64, warm);
      run_timed("one GPC", {apart.begin(), apart.begin() + 8}, delay, 64, warm);
    }
  for (bool warm : {true, false})
    for (int count : {2, 3, 4, 5, 6, 7, 8, 12, 16})
      run_timed("one GPC", {one.begin(), one.begin() + count}, 0, 64, warm);
  for (bool warm : {true, false})
    for (u32 rows : {1, 8, 128, 256})
      for (int delay : {0, 100, 300, 600})
        run_timed("one GPC", {apart.begin(), apart.begin() + 4}, delay, rows, warm);

  // Of the SMs of each GPC, `by_row` in turn share a row and `by_column` a column; those of different
  // GPCs share rows where `across` is set. Rows and columns of single SMs are their own.
  auto roles_of = [&](int by_row, int by_column, bool across) {
    Roles roles{};
    int next_row = 0, next_column = 0;
    for (auto& gpc : gpcs) {
      if (across) next_row = 0;
      for (size_t i = 0; i < gpc.size(); ++i) {
        roles.row[gpc[i]] = int16_t(next_row + int(i) / by_row);
        roles.column[gpc[i]] = int16_t(next_column + int(i) / by_column);
      }
      next_row += (int(gpc.size()) + by_row - 1) / by_row;
      next_column += (int(gpc.size()) + by_column - 1) / by_column;
    }
    return roles;
  };
  const u32 cold = SLABS;
  char who[64];
  // Rows by one SM each, columns shared: readers, work, stages, length.
  for (int readers : {2, 4, 8, 18})
    for (u32 slabs : {64u, 256u, 1024u})
      for (u32 work : {1024u, 0u}) {
        std::snprintf(who, sizeof who, "1/%d", readers);
        run_rings(who, roles_of(1, readers, true), {4, work, slabs, cold, cold, 0, 0});
        run_rings(who, roles_of(1, readers, true), {4, work, slabs, 16, 8, 0, 0});
      }
  for (u32 stages : {1u, 2u, 3u})
    for (u32 slabs : {64u, 256u, 1024u}) {
      run_rings("1/18", roles_of(1, 18, true), {stages, 1024, slabs, cold, cold, 0, 0});
      run_rings("1/18", roles_of(1, 18, true), {stages, 1024, slabs, 16, 8, 0, 0});
    }
  // As products: rows shared by two or eight of a GPC, and stores after each tile.
  for (u32 slabs : {64u, 256u, 1024u})
    for (u32 stored : {0u, 64u}) {
      run_rings("2/8", roles_of(2, 8, true), {4, 512, slabs, cold, cold, 64, stored});
      run_rings("8/2", roles_of(8, 2, true), {4, 1024, slabs, cold, cold, 64, stored});
      run_rings("1/18", roles_of(1, 18, true), {4, 1024, slabs, cold, cold, 64, stored});
      run_rings("1/18", roles_of(1, 18, true), {4, 1024, slabs, 64, cold, 64, stored});
      run_rings("1/18", roles_of(1, 18, false), {4, 1024, slabs, cold, cold, 64, stored});
    }
  // Grids of several waves.
  for (int waves = 1; waves <= MOST_WAVES; waves *= 2)
    for (u32 readers : {4u, 16u, 32u, 132u})
      for (u32 slabs : {32u, 64u})
        for (u32 work : {1024u, 2560u, 0u})
          for (u32 stored : {64u, 0u}) {
            if (slabs == 32 && (work == 0 || stored == 0)) continue;
            Roles roles{};
            roles.readers = readers;
            std::snprintf(who, sizeof who, "waves %u/%d", readers, waves);
            run_rings(who, roles, {4, work, slabs, cold, 8, slabs, stored}, waves);
          }
  return 0;
}
