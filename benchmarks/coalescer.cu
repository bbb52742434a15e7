// Reads of one sector by several SMs at chosen times, for benchmarks/coalescer.py.
//
//     coalescer              runs every case once, in the order that it prints
//     ncu -k regex:^(timed|free_running)$ ... coalescer
//
// SMs are named by %smid. SMs 2k and 2k + 1 form a TPC; blocks of one cluster run on SMs of one GPC
// (CUDA C++ Programming Guide, "Thread Block Clusters"), which gives the GPCs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "common_clock.cuh"

constexpr int MOST_SMS = 160, SECTOR_WORDS = 8, ROUNDS = 512;
constexpr int WHOLE_SM_BYTES = 180 * 1024;  // of shared memory: one block on each SM

struct Roles {
  int16_t rank[MOST_SMS];  // by SM: its turn in a round; -1 for one that takes no part
};

__device__ unsigned read_l2(const unsigned* from) {
  unsigned value;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// In each round, the SM of rank r reads the round's sector r * delay clocks after the round began.
// `warps` warps of an SM read it, at once.
__global__ void timed(const unsigned* data, unsigned* sink, Meeting* meeting, Roles roles,
                      unsigned readers, int delay, int period, int warm) {
  __shared__ Common begin;
  int rank = roles.rank[multiprocessor()];
  if (rank < 0) {  // keep the SM, so that no second block starts on it
    long long until = clock64() + 100000;
    while (clock64() < until) {
    }
    return;
  }
  unsigned sum = 0;
  if (rank == 0 && warm)  // each sector is read once before: the rounds hit the L2
    for (int i = threadIdx.x; i < ROUNDS; i += blockDim.x)
      sum += read_l2(data + i * SECTOR_WORDS);
  __syncthreads();
  if (threadIdx.x == 0)
    begin = common_clock(meeting, readers);
  __syncthreads();
  long long next = begin.clock + (long long)(5.0 * LEAD_NS * begin.clocks_per_ns) + rank * delay;
  if (threadIdx.x % 32 == 0)
    for (int round = 0; round < ROUNDS; ++round, next += period) {
      while (clock64() < next) {
      }
      sum += read_l2(data + round * SECTOR_WORDS);
    }
  if (sum == 0x12345678u)
    *sink = sum;
}

// Blocks read arrays from end to end, a sector per thread, and never wait for one another: block b
// reads array b % arrays, `depth` loads at a time.
template <int DEPTH>
__device__ unsigned stream(const unsigned* data, int sectors) {
  unsigned sum = 0;
  for (int i = threadIdx.x; i < sectors; i += DEPTH * blockDim.x) {
    unsigned value[DEPTH];
#pragma unroll
    for (int j = 0; j < DEPTH; ++j)
      value[j] = read_l2(data + (size_t)(i + j * blockDim.x) * SECTOR_WORDS);
#pragma unroll
    for (int j = 0; j < DEPTH; ++j)
      sum += value[j];
  }
  return sum;
}

__global__ void free_running(const unsigned* data, unsigned* sink, int arrays, int sectors,
                             int depth, int adjacent) {
  int shares = gridDim.x / arrays;
  int array = adjacent ? blockIdx.x / shares : blockIdx.x % arrays;
  const unsigned* from = data + (size_t)array * sectors * SECTOR_WORDS;
  unsigned sum = depth == 1 ? stream<1>(from, sectors) : stream<8>(from, sectors);
  if (sum == 0x12345678u)
    *sink = sum;
}

__global__ void where_am_i(unsigned* places) { places[blockIdx.x] = multiprocessor(); }

// SMs by GPC: those that ever hold blocks of one cluster belong together.
std::vector<std::vector<int>> find_gpcs(int multiprocessors) {
  std::vector<int> parent(multiprocessors);
  std::iota(parent.begin(), parent.end(), 0);
  auto root = [&](int i) {
    while (parent[i] != i)
      i = parent[i];
    return i;
  };
  unsigned* places;
  int size = 8, blocks = multiprocessors / size * size * 4;
  CHECK(cudaMalloc(&places, blocks * sizeof *places));
  CHECK(cudaFuncSetAttribute(where_am_i, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             WHOLE_SM_BYTES));
  for (int turn = 0; turn < 20; ++turn) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(size), 1, 1};
    cudaLaunchConfig_t launch{};
    launch.gridDim = dim3(blocks);
    launch.blockDim = dim3(32);
    launch.dynamicSmemBytes = WHOLE_SM_BYTES;
    launch.attrs = &cluster;
    launch.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&launch, where_am_i, places));
    std::vector<unsigned> found(blocks);
    CHECK(cudaMemcpy(found.data(), places, blocks * sizeof *places, cudaMemcpyDeviceToHost));
    for (int i = 0; i < blocks; ++i)
      parent[root(found[i])] = root(found[i / size * size]);
  }
  CHECK(cudaFree(places));
  std::map<int, std::vector<int>> groups;
  for (int i = 0; i < multiprocessors; ++i)
    groups[root(i)].push_back(i);
  std::vector<std::vector<int>> gpcs;
  for (auto& group : groups)
    gpcs.push_back(group.second);
  std::sort(gpcs.begin(), gpcs.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return gpcs;
}

struct Bench {
  unsigned *data, *sink;
  Meeting* meeting;
  int multiprocessors;

  void run_timed(const std::string& who, const std::vector<int>& sms, int delay, int warps,
                 bool warm) {
    Roles roles;
    std::fill(roles.rank, roles.rank + MOST_SMS, int16_t(-1));
    for (size_t i = 0; i < sms.size(); ++i)
      roles.rank[sms[i]] = int16_t(i);
    int period = 3000 + delay * int(sms.size());
    CHECK(cudaMemset(meeting, 0, sizeof *meeting));
    timed<<<multiprocessors, 32 * warps, WHOLE_SM_BYTES>>>(
        data, sink, meeting, roles, unsigned(sms.size()), delay, period, warm);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("timed,%s,%zu,%d,%d,%d,%d\n", who.c_str(), sms.size(), warps, delay, int(warm),
                ROUNDS);
  }

  void run_free(int blocks, int threads, int shared_bytes, int arrays, int sectors, int depth,
                bool adjacent) {
    free_running<<<blocks, threads, shared_bytes>>>(data, sink, arrays, sectors, depth, adjacent);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("free_running,%s %d threads %d blocks,%d,%d,%d,%d,%d\n",
                adjacent ? "neighbours" : "apart", threads, blocks, blocks / arrays, threads / 32,
                depth, shared_bytes, sectors * arrays);
  }
};

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  Bench bench{};
  bench.multiprocessors = std::min(properties.multiProcessorCount, MOST_SMS);
  CHECK(cudaMalloc(&bench.data, size_t(64) << 20));
  CHECK(cudaMemset(bench.data, 1, size_t(64) << 20));
  CHECK(cudaMalloc(&bench.sink, sizeof *bench.sink));
  CHECK(cudaMalloc(&bench.meeting, sizeof *bench.meeting));
  CHECK(cudaFuncSetAttribute(timed, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM_BYTES));
  CHECK(cudaFuncSetAttribute(free_running, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             WHOLE_SM_BYTES));
  auto gpcs = find_gpcs(bench.multiprocessors);
  std::fprintf(stderr, "%s, %d SMs\n", properties.name, bench.multiprocessors);
  for (auto& gpc : gpcs) {
    std::fprintf(stderr, "GPC:");
    for (int sm : gpc)
      std::fprintf(stderr, " %d", sm);
    std::fprintf(stderr, "\n");
  }
  std::printf("kernel,who,readers,warps,delay_or_depth,warm_or_shared,sectors\n");
  const auto& first = gpcs[0];
  auto partner = [&](int sm) { return sm ^ 1; };
  int other = first[0];
  for (int sm : first)
    if (sm != first[0] && sm != partner(first[0]))
      other = sm;
  int far = gpcs.size() > 1 ? gpcs[1][0] : other;
  // --- Two SMs, near and far, at growing distance in time
  for (bool warm : {true, false})
    for (int delay : {0, 50, 100, 150, 200, 250, 300, 400, 500, 700, 900, 1200}) {
      bench.run_timed("same SM", {first[0]}, delay, 2, warm);
      bench.run_timed("same TPC", {first[0], partner(first[0])}, delay, 1, warm);
      bench.run_timed("same GPC", {first[0], other}, delay, 1, warm);
      bench.run_timed("other GPC", {first[0], far}, delay, 1, warm);
    }
  // --- More and more SMs at once: of one GPC, of several, one of each
  for (bool warm : {true, false})
    for (int count : {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 132}) {
      if (count > bench.multiprocessors)
        continue;
      if (count <= int(first.size()))
        bench.run_timed("one GPC", {first.begin(), first.begin() + count}, 0, 1, warm);
      std::vector<int> apart;
      for (size_t i = 0; int(apart.size()) < count; ++i)
        for (auto& gpc : gpcs)
          if (i < gpc.size() && int(apart.size()) < count)
            apart.push_back(gpc[i]);
      bench.run_timed("all GPCs", apart, 0, 1, warm);
    }
  // --- Blocks that never wait for one another
  int sms = bench.multiprocessors / 4 * 4;
  for (int depth : {1, 8})
    for (int sharers : {1, 2, 4, 12, 33, 132}) {
      if (sms % sharers)
        continue;
      int arrays = sms / sharers;
      int sectors = (1 << 20) / arrays / 8192 * 8192;  // 32 MiB in all: it fits the L2
      bench.run_free(sms, 1024, WHOLE_SM_BYTES, arrays, std::max(sectors, 8192), depth, true);
      bench.run_free(sms, 1024, WHOLE_SM_BYTES, arrays, std::max(sectors, 8192), depth, false);
      bench.run_free(sms * 8, 256, 20 * 1024, arrays, std::max(sectors, 8192), depth, true);
      bench.run_free(sms * 8, 256, 20 * 1024, arrays, std::max(sectors, 8192), depth, false);
    }
  return 0;
}
