// Loads of constant memory by warps that walk through a table of it, for benchmarks/microbenchmarks.py.
//
// Each warp passes over `footprint` bytes of a table, over and over, `stride` bytes a load. The index is
// the same in all lanes, in a uniform register (`uniform`: ULDC) or in one of a thread (`vector`: LDC), or
// lanes use `words` distinct ones (`divergent`: LDC), `gap` bytes apart; or each address is in an instruction
// of its own (`fixed`: ULDC). In `chase_uniform` and `chase_vector` each load has the address of the next one.
// Warps of a block begin at one place. Blocks begin at one place, or at places of their own (`apart`). `math`
// multiply-adds follow each load besides those that use it. `sms` SMs take part, up to 16 of one GPC, or all:
// the others idle. Each warp has passed over the table, and all warps begin at the same time. `clocks` are
// those of an SM per load of a warp, the mean over the SMs.
#include <algorithm>
#include <cooperative_groups.h>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device.cuh"

constexpr u32 TABLE_BYTES = 65536, LANES = 32, GPC_SMS = 16, SHARED_BYTES = 224 << 10, MOST_LOADS = 4096;
__constant__ __align__(16) u32 table[TABLE_BYTES / 4];

struct Launch {
  u32 footprint, rounds, warm_rounds, apart, words, gap;
  const u32* chosen;  // by SM: 1 where it takes part
  u32* arrived;
  u32 zero;
};

struct Times {
  u64 *starts, *ends;  // by warp
  u32* sms;
  float* sums;  // by thread
};

__device__ __forceinline__ void meet(u32* arrived, u32 count) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile u32*)arrived < count) __nanosleep(100);
  }
  __syncthreads();
}

template <class T>
__device__ __forceinline__ T at_index(u32 index) {
  return reinterpret_cast<const T*>(table)[index];
}

template <class T>
__device__ __forceinline__ void use(float* sums, float x, T value) {
  const float* parts = reinterpret_cast<const float*>(&value);
#pragma unroll
  for (u32 part = 0; part < sizeof(T) / 4; ++part) sums[part] = fmaf(x, parts[part], sums[part]);
}

enum Kind : u32 { UNIFORM, VECTOR, DIVERGENT, FIXED, CHASE_UNIFORM, CHASE_VECTOR };
const char* const NAMES[] = {"uniform", "vector", "divergent", "fixed", "chase_uniform", "chase_vector"};

// A loop over the table. STRIDE is in units of T.
template <u32 KIND, class T, u32 UNROLL, u32 STRIDE, u32 MATH>
struct Walk {
  static constexpr u32 kind = KIND, width = sizeof(T), unroll = UNROLL, stride = STRIDE * sizeof(T), math = MATH;
  static constexpr u32 loads = UNROLL;

  __device__ static u32 begin(const Launch& launch) {
    u32 count = launch.footprint / sizeof(T), at = 0;
    if (launch.apart) at = hashed(blockIdx.x, 3) * (UNROLL * STRIDE) & (count - 1);
    if (KIND == VECTOR) at += launch.zero * threadIdx.x;
    if (KIND == DIVERGENT) at += threadIdx.x % launch.words * (launch.gap / sizeof(T));
    return at;
  }

  __device__ static void run(u32& at, u32 rounds, const Launch& launch, float x, float* sums, float* others) {
    u32 mask = launch.footprint / sizeof(T) - 1;
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
      T values[UNROLL];
#pragma unroll
      for (u32 i = 0; i < UNROLL; ++i) values[i] = at_index<T>(at + i * STRIDE);
#pragma unroll
      for (u32 i = 0; i < UNROLL; ++i) {
        use(sums + i % 4 * 4, x, values[i]);
#pragma unroll
        for (int j = 0; j < int(MATH); ++j) others[j % 8] = fmaf(others[j % 8], x, others[(j + 1) % 8]);
      }
      at = (at + UNROLL * STRIDE) & mask;
    }
  }
};

// Code without a loop over the table: COUNT addresses, STRIDE words apart.
template <u32 COUNT, u32 STRIDE, u32 MATH>
struct Fixed {
  static constexpr u32 kind = FIXED, width = 4, unroll = COUNT, stride = STRIDE * 4, math = MATH, loads = COUNT;
  __device__ static u32 begin(const Launch&) { return 0; }

  __device__ static void run(u32&, u32 rounds, const Launch&, float x, float* sums, float* others) {
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
#pragma unroll
      for (u32 i = 0; i < COUNT; ++i) {
        sums[i % 16] = fmaf(x, __uint_as_float(table[i * STRIDE]), sums[i % 16]);
#pragma unroll
        for (int j = 0; j < int(MATH); ++j) others[j % 8] = fmaf(others[j % 8], x, others[(j + 1) % 8]);
      }
    }
  }
};

template <u32 KIND>
struct Chase {
  static constexpr u32 kind = KIND, width = 4, unroll = 1, stride = 64, math = 0, loads = 1;

  __device__ static u32 begin(const Launch& launch) {
    u32 at = launch.apart ? hashed(blockIdx.x, 3) * 16 & (launch.footprint / 4 - 1) : 0;
    return at + (KIND == CHASE_VECTOR ? launch.zero * threadIdx.x : 0);
  }

  __device__ static void run(u32& at, u32 rounds, const Launch&, float, float* sums, float*) {
#pragma unroll 4
    for (u32 round = 0; round < rounds; ++round) at = table[at];
    sums[0] += float(at);
  }
};

template <class Way>
__global__ void __launch_bounds__(1024) walk(Launch launch, Times times) {
  bool takes_part = launch.chosen[multiprocessor()];
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x, warp = thread / LANES;
  float sums[16] = {}, others[8], x = 1.0f + launch.zero * threadIdx.x;
  for (u32 i = 0; i < 8; ++i) others[i] = x + i;
  u32 at = Way::begin(launch);
  if (takes_part) Way::run(at, launch.warm_rounds, launch, x, sums, others);
  meet(launch.arrived, gridDim.x);
  if (!takes_part) {
    if (threadIdx.x % LANES == 0) times.sms[warp] = ~0u;
    return;
  }
  u64 start = clock_of_sm();
  Way::run(at, launch.rounds, launch, x, sums, others);
  float sum = 0;
  for (u32 i = 0; i < 16; ++i) sum += sums[i];
  asm volatile("" ::"f"(sum) : "memory");
  u64 end = clock_of_sm();
  for (u32 i = 0; i < 8; ++i) sum += others[i] == -1.0f;
  times.sums[thread] = sum;
  if (threadIdx.x % LANES) return;
  times.starts[warp] = start, times.ends[warp] = end, times.sms[warp] = multiprocessor();
}

// SMs of one GPC: those of a cluster.
__global__ void in_cluster(u32* sms) {
  if (threadIdx.x == 0) sms[blockIdx.x] = multiprocessor();
  __nanosleep(20000);
}

struct Bench {
  u32 count = multiprocessors();
  std::vector<u32> gpc;
  std::vector<float> values;
  std::map<u32, u32*> chosen;
  u32* arrived = device_memory<u32>(1);
  Times times{device_memory<u64>(count * 64), device_memory<u64>(count * 64), device_memory<u32>(count * 64),
              device_memory<float>(count * 2048)};

  Bench() {
    u32* found = device_memory<u32>(GPC_SMS);
    CHECK(cudaFuncSetAttribute(in_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    CHECK(cudaFuncSetAttribute(in_cluster, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    cudaLaunchConfig_t config{};
    config.gridDim = GPC_SMS, config.blockDim = 32, config.dynamicSmemBytes = 200 << 10;
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = GPC_SMS, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster, config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, in_cluster, found));
    finish();
    gpc.resize(GPC_SMS);
    CHECK(cudaMemcpy(gpc.data(), found, GPC_SMS * 4, cudaMemcpyDeviceToHost));
    for (u32 sms : {1u, 2u, 4u, 8u, 16u, count}) {
      std::vector<u32> flags(count, sms == count);
      for (u32 i = 0; i < sms && i < GPC_SMS; ++i) flags[gpc[i]] = 1;
      chosen[sms] = device_memory<u32>(count);
      CHECK(cudaMemcpy(chosen[sms], flags.data(), count * 4, cudaMemcpyHostToDevice));
    }
    std::mt19937 random(7);
    for (u32 i = 0; i < TABLE_BYTES / 4; ++i) values.push_back(random() % 8);
  }

  void fill_values() { CHECK(cudaMemcpyToSymbol(table, values.data(), TABLE_BYTES)); }

  // One cycle in random order through all lines of a footprint (Sattolo's algorithm).
  void fill_chain(u32 footprint) {
    std::vector<u32> order(footprint / 64), chain(TABLE_BYTES / 4);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937 random(footprint);
    for (u32 i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % i]);
    for (u32 i = 0; i < order.size(); ++i) chain[i * 16] = order[i] * 16;
    CHECK(cudaMemcpyToSymbol(table, chain.data(), TABLE_BYTES));
  }

  template <class Way>
  void measure(u32 footprint, u32 sms, u32 blocks, u32 warps, bool apart, u32 words = 1, u32 gap = 0) {
    constexpr bool is_chase = Way::kind == CHASE_UNIFORM || Way::kind == CHASE_VECTOR;
    u32 pass = std::max(footprint / Way::stride / Way::loads, 1u);
    u32 rounds = std::min(std::max(pass, 2048 / Way::loads), std::max(MOST_LOADS / Way::loads, 1u));
    if (Way::kind == FIXED) pass = 1, rounds = std::max(4096 / Way::loads, 2u);
    if (blocks * warps == 1) rounds *= 2;
    Launch launch{footprint, rounds, pass, apart, words, gap, chosen[sms], arrived, 0};
    u32 shared = std::min(SHARED_BYTES / blocks - 1024, 200u << 10) & ~1023u;
    CHECK(cudaFuncSetAttribute(walk<Way>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaFuncSetAttribute(walk<Way>, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared));
    int resident = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, walk<Way>, warps * LANES, shared));
    if (resident != int(blocks)) {
      if (resident > int(blocks)) std::fprintf(stderr, "%d blocks instead of %u\n", resident, blocks);
      return;
    }
    CHECK(cudaMemset(arrived, 0, 4));
    u32 grid = count * blocks, all = grid * warps;
    walk<Way><<<grid, warps * LANES, shared>>>(launch, times);
    finish();
    std::vector<u64> starts(all), ends(all);
    std::vector<u32> of(all);
    CHECK(cudaMemcpy(starts.data(), times.starts, all * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(ends.data(), times.ends, all * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(of.data(), times.sms, all * 4, cudaMemcpyDeviceToHost));
    std::map<u32, std::pair<u64, u64>> spans;
    std::map<u32, u32> found;
    u32 first = all;
    for (u32 i = 0; i < all; ++i) {
      if (of[i] == ~0u) continue;
      first = std::min(first, i);
      auto& span = spans.try_emplace(of[i], starts[i], ends[i]).first->second;
      span = {std::min(span.first, starts[i]), std::max(span.second, ends[i])};
      ++found[of[i]];
    }
    double clocks = 0;
    bool is_even = spans.size() == sms;
    for (auto& [sm, span] : spans) {
      clocks += double(span.second - span.first) / sms;
      is_even &= found[sm] == blocks * warps;
    }
    if (!is_even) std::fprintf(stderr, "%s: uneven blocks\n", NAMES[Way::kind]);
    u64 loads = u64(rounds) * Way::loads * blocks * warps;
    if (!is_chase) check<Way>(launch, first, warps);
    std::printf("%s,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%d,%llu,%.3f\n", NAMES[Way::kind], Way::width, Way::unroll,
                Way::stride, Way::math, footprint, words, gap, sms, blocks, warps, int(apart), loads,
                clocks / loads);
  }

  // The first thread's sum of the first warp that took part; integers, so that it is exact.
  template <class Way>
  void check(const Launch& launch, u32 warp, u32 warps) {
    float sum;
    CHECK(cudaMemcpy(&sum, times.sums + u64(warp) * LANES, 4, cudaMemcpyDeviceToHost));
    u32 block = warp / warps, step = Way::stride / 4, size = launch.footprint / 4;
    u32 at = launch.apart ? hashed(block, 3) * (Way::loads * step) & (size - 1) : 0;
    double expected = 0;
    for (u32 round = 0; round < launch.rounds + launch.warm_rounds; ++round)
      for (u32 i = 0; i < Way::loads; ++i, at = (at + step) & (size - 1))
        for (u32 part = 0; part < Way::width / 4; ++part) expected += values[(at + part) % (TABLE_BYTES / 4)];
    if (sum != float(expected)) {
      std::fprintf(stderr, "%s: sum %.0f, not %.0f\n", NAMES[Way::kind], sum, expected);
      std::exit(1);
    }
  }

  template <class Way>
  void sweep(bool is_short = false) {
    for (u32 footprint = 512; footprint <= TABLE_BYTES; footprint *= 2) {
      if (is_short && footprint != 1024 && footprint != 4096 && footprint != 16384) continue;
      for (u32 sms : {1u, count}) {
        for (u32 warps : {1u, 4u, 8u, 16u, 32u}) measure<Way>(footprint, sms, 1, warps, false);
        if (Way::kind == FIXED) continue;
        for (u32 blocks : {2u, 4u, 8u, 16u, 32u}) measure<Way>(footprint, sms, blocks, 1, true);
        for (u32 blocks : {4u, 8u}) measure<Way>(footprint, sms, blocks, 8, true);
      }
    }
  }

  template <class Way>
  void sweep_sms() {
    for (u32 footprint : {1024u, 4096u, 16384u, 65536u})
      for (u32 sms : {2u, 4u, 8u, 16u}) {
        for (u32 warps : {1u, 16u}) measure<Way>(footprint, sms, 1, warps, false);
        if (Way::kind != FIXED) measure<Way>(footprint, sms, 16, 1, true);
      }
  }

  template <u32 STRIDE, u32 MATH>
  void fixed_addresses() {
    fixed_of<512 / STRIDE / 4, STRIDE, MATH>();
    fixed_of<1024 / STRIDE / 4, STRIDE, MATH>();
    fixed_of<2048 / STRIDE / 4, STRIDE, MATH>();
    fixed_of<4096 / STRIDE / 4, STRIDE, MATH>();
    fixed_of<16384 / STRIDE / 4, STRIDE, MATH>();
    if constexpr (STRIDE >= 16) fixed_of<65536 / STRIDE / 4, STRIDE, MATH>();
  }

  template <u32 COUNT, u32 STRIDE, u32 MATH>
  void fixed_of() {
    using Way = Fixed<COUNT, STRIDE, MATH>;
    u32 footprint = COUNT * STRIDE * 4;
    for (u32 sms : {1u, 16u, count})
      for (u32 warps : {1u, 4u, 8u, 16u, 32u}) measure<Way>(footprint, sms, 1, warps, false);
  }

  template <u32 KIND>
  void chases() {
    for (u32 footprint = 512; footprint <= TABLE_BYTES; footprint *= 2) {
      fill_chain(footprint);
      for (u32 sms : {1u, count}) {
        for (u32 warps : {1u, 4u, 16u}) measure<Chase<KIND>>(footprint, sms, 1, warps, false);
        measure<Chase<KIND>>(footprint, sms, 16, 1, true);
      }
    }
  }
};

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  Bench bench;
  std::printf("kernel,bytes,unroll,stride,math,footprint,words,gap,sms,blocks,warps,apart,loads,clocks\n");
  bench.chases<CHASE_UNIFORM>();
  bench.chases<CHASE_VECTOR>();
  bench.fill_values();
  bench.sweep<Walk<UNIFORM, float, 1, 1, 0>>();
  bench.sweep<Walk<UNIFORM, float, 4, 1, 0>>();
  bench.sweep<Walk<UNIFORM, float2, 4, 1, 0>>();
  bench.sweep<Walk<UNIFORM, float4, 1, 1, 0>>();
  bench.sweep<Walk<UNIFORM, float4, 4, 1, 0>>();
  bench.sweep_sms<Walk<UNIFORM, float4, 4, 1, 0>>();
  bench.sweep<Walk<UNIFORM, float4, 4, 1, 8>>();
  bench.sweep<Walk<UNIFORM, float4, 4, 1, 32>>(true);
  bench.sweep<Walk<UNIFORM, float, 4, 4, 0>>(true);
  bench.sweep<Walk<UNIFORM, float, 4, 8, 0>>(true);
  bench.sweep<Walk<UNIFORM, float, 4, 16, 0>>(true);
  bench.sweep_sms<Walk<UNIFORM, float, 4, 16, 0>>();
  bench.sweep<Walk<UNIFORM, float, 4, 32, 0>>(true);
  bench.sweep<Walk<UNIFORM, float, 4, 64, 0>>(true);
  bench.sweep<Walk<VECTOR, float, 1, 1, 0>>();
  bench.sweep<Walk<VECTOR, float, 4, 1, 0>>();
  bench.sweep<Walk<VECTOR, float2, 4, 1, 0>>();
  bench.sweep<Walk<VECTOR, float4, 4, 1, 0>>();
  bench.sweep<Walk<VECTOR, float4, 4, 1, 8>>(true);
  bench.sweep<Walk<VECTOR, float, 4, 16, 0>>();
  bench.sweep_sms<Walk<VECTOR, float, 4, 16, 0>>();
  bench.sweep<Walk<VECTOR, float, 4, 32, 0>>(true);
  for (u32 sms : {1u, bench.count})
    for (u32 footprint : {1024u, 16384u})
      for (u32 gap : {4u, 64u})
        for (u32 words : {2u, 4u, 8u, 16u, 32u})
          for (u32 warps : {1u, 4u, 16u, 32u}) {
            if (footprint + words * gap > TABLE_BYTES) continue;
            bench.measure<Walk<DIVERGENT, float, 4, 1, 0>>(footprint, sms, 1, warps, false, words, gap);
          }
  bench.fixed_addresses<16, 0>();
  bench.fixed_addresses<16, 4>();
  bench.fixed_addresses<4, 0>();
}
