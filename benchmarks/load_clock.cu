// The clock of SMs whose tensor cores are busy, for benchmarks/microbenchmarks.py.
//
// On each SM, two warpgroups multiply matrices in shared memory, or their left one in registers, for
// a share of the time: they start a group of products every so many clocks. Numbers are from 0 to 1
// (`unit`), from -1 to 1 (`signed`) or zeros. One warp of each SM may copy boxes of 16 KiB from the
// L2, one every `pace` clocks at most. A warp of one SM reads its clock and the global timer, again
// and again: `ns` and `clocks` since the products began, at growing distances; `copied_bytes` are
// those that all SMs have copied in the end, `late_clocks` is how late the last group began. Before
// each launch the GPU rests.
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#define BF16 3
#define FP16 2
#define INPUT BF16
#include "../kernels/hopper.cuh"
#include "common_clock.cuh"

constexpr int GROUPS = 2, WORKERS = 128 * GROUPS, THREADS = WORKERS + 64, STEPS = 4;
constexpr u32 M_BYTES = 64 * 128, N_BYTES = 256 * 128, STAGES = 4, BOX_BYTES = 16 * 1024;
constexpr u32 PRODUCT_BYTES = GROUPS * M_BYTES + N_BYTES;
constexpr u32 SHARED_BYTES = PRODUCT_BYTES + STAGES * BOX_BYTES;
constexpr int MARKS = 96;
constexpr u64 REGION_BYTES = 192 * 1024;

extern __shared__ __align__(1024) unsigned char memory[];

enum Type { BRAIN, BRAIN_128, BRAIN_REGISTERS, HALF, TF32_SHARED, TF32_REGISTERS, FP8 };
constexpr const char* NAMES[] = {"bf16", "bf16 n128", "bf16 registers", "fp16", "tf32", "tf32 registers", "fp8"};
enum Data { UNIT, SIGNED, ZERO };
constexpr const char* DATA[] = {"unit", "signed", "zeros"};

struct Case { Type type; Data data; int busy_percent; int pace; u32 microseconds; };
struct Mark { u64 ns, clock; };

#define SHARED_PRODUCT(NAME, SHAPE, TAIL)                                                       \
  __device__ __forceinline__ void NAME(float(&sums)[128], u64 M, u64 N) {                        \
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE " {" NAMES_128 "}, %128, %129, 1, 1, 1" TAIL ";" \
                 : SUMS_128 : "l"(M), "l"(N));                                                   \
  }
SHARED_PRODUCT(brain, "m64n256k16.f32.bf16.bf16", ", 0, 1")
SHARED_PRODUCT(half_, "m64n256k16.f32.f16.f16", ", 0, 1")
SHARED_PRODUCT(tf32_, "m64n256k8.f32.tf32.tf32", "")
SHARED_PRODUCT(fp8_, "m64n256k32.f32.e4m3.e4m3", "")
__device__ __forceinline__ void brain_registers(float(&sums)[128], const u32 (&left)[4], u64 N) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES_128
               "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : SUMS_128 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(N));
}
__device__ __forceinline__ void tf32_registers(float(&sums)[128], const u32 (&left)[4], u64 N) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" NAMES_128
               "}, {%128, %129, %130, %131}, %132, 1, 1, 1;"
               : SUMS_128 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(N));
}

__device__ void copy_boxes(const unsigned char* region, volatile int* done, u64* copied, int pace) {
  __shared__ __align__(8) u64 full[STAGES];
  for (u32 stage = 0; stage < STAGES; ++stage) make_barrier(shared_address(full + stage), 1);
  publish_barriers();
  u64 count = 0, next = clock_of_sm();
  for (; !*done; ++count, next += pace) {
    while (clock_of_sm() < next) {
    }
    u32 stage = count % STAGES, barrier = shared_address(full + stage);
    if (count >= STAGES) wait(barrier, count / STAGES % 2 ^ 1);
    arrive_expecting(barrier, BOX_BYTES);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(memory) + PRODUCT_BYTES + stage * BOX_BYTES),
        "l"(region + count * BOX_BYTES % REGION_BYTES), "r"(BOX_BYTES), "r"(barrier)
        : "memory");
  }
  for (u64 last = count < STAGES ? 0 : count - STAGES; last < count; ++last)
    wait(shared_address(full + last % STAGES), last / STAGES % 2);
  *copied = count * BOX_BYTES;
}

template <Type TYPE>
__global__ void __launch_bounds__(THREADS, 1)
    products(const uint4* words, const unsigned char* regions, u32 rounds, u32 period, int pace,
             Mark* marks, u64* copied, u64* slips, float* out) {
  __shared__ volatile int done;
  __shared__ u64 started;
  int group = uniform(threadIdx.x / 128);
  uint4* own = reinterpret_cast<uint4*>(memory);
  for (u32 i = threadIdx.x; i < PRODUCT_BYTES / 16; i += THREADS) own[i] = words[i];
  show_to_copies();
  if (threadIdx.x == 0) {
    done = 0;
    started = clock_of_sm() + 4000;
  }
  __syncthreads();
  if (threadIdx.x >= WORKERS) {
    if (threadIdx.x == WORKERS && pace)
      copy_boxes(regions + blockIdx.x * REGION_BYTES, &done, copied + blockIdx.x, pace);
    if (threadIdx.x == WORKERS + 32 && blockIdx.x == 0) {
      while (clock_of_sm() < started) {
      }
      Tick first = next_tick();
      u64 due = first.ns;
      for (int i = 0; i < MARKS && !done; ++i) {
        Tick tick = next_tick();
        while (tick.ns < due && !done) tick = next_tick();
        marks[i] = {tick.ns - first.ns, u64(tick.clock - first.clock)};
        due += 1000 + (tick.ns - first.ns) / 16;
      }
    }
    return;
  }
  u32 base = shared_address(memory);
  constexpr bool along_k = TYPE == TF32_SHARED || TYPE == TF32_REGISTERS || TYPE == FP8;
  auto M = describe(base + group * M_BYTES, 0), N = describe(base + GROUPS * M_BYTES, along_k ? 0 : 64 * 128);
  u32 left[4];
  const u32* registers = reinterpret_cast<const u32*>(memory) + group * M_BYTES / 4;
  for (int j = 0; j < 4; ++j) left[j] = registers[j * 128 + threadIdx.x % 128];
  float sums[128];
  for (int i = 0; i < 128; ++i) sums[i] = 0;
  float few[64];
  for (int i = 0; i < 64; ++i) few[i] = 0;
  u64 next = started + group * (period / GROUPS), late = 0;
  while (clock_of_sm() < next) {
  }
  for (u32 round = 0; round < rounds; ++round, next += period) {
    u64 now = clock_of_sm();
    if (period) {
      if (now > next) late = now - next;
      while (clock_of_sm() < next) {
      }
    }
    begin_products();
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      auto m = advance(M, i * 32), n = advance(N, along_k ? i * 32 : i * 16 * 128);
      if constexpr (TYPE == BRAIN) brain(sums, m, n);
      if constexpr (TYPE == BRAIN_128) multiply(few, m, n, true);
      if constexpr (TYPE == BRAIN_REGISTERS) brain_registers(sums, left, n);
      if constexpr (TYPE == HALF) half_(sums, m, n);
      if constexpr (TYPE == TF32_SHARED) tf32_(sums, m, n);
      if constexpr (TYPE == TF32_REGISTERS) tf32_registers(sums, left, n);
      if constexpr (TYPE == FP8) fp8_(sums, m, n);
    }
    end_products();
    wait_for_products<0>();
  }
  meet(1, WORKERS);
  if (threadIdx.x == 0) {
    done = 1;
    slips[blockIdx.x] = period ? late : clock_of_sm() - started;
  }
  float sum = 0;
  for (int i = 0; i < 128; ++i) sum += sums[i];
  for (int i = 0; i < 64; ++i) sum += few[i];
  if (sum == 12345.0f) out[threadIdx.x] = sum;
}

static void* matrices(Type type, Data data) {
  std::vector<unsigned char> bytes(PRODUCT_BYTES);
  u32 size = type == FP8 ? 1 : type == TF32_SHARED || type == TF32_REGISTERS ? 4 : 2;
  for (u32 i = 0; i < PRODUCT_BYTES / size; ++i) {
    float value = int(hashed(11, i) >> 8) / 16777216.0f;
    if (data == SIGNED) value = 2 * value - 1;
    if (data == ZERO) value = 0;
    u32 bits;
    memcpy(&bits, &value, 4);
    if (type == FP8) {
      bits = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
    } else if (type == HALF) {
      __half h = __float2half(value);
      memcpy(&bits, &h, 2);
    } else if (size == 2) {
      bits = (bits + 0x8000) >> 16;
    } else {
      bits = (bits + 0x1000) & 0xFFFFE000;
    }
    memcpy(bytes.data() + i * size, &bits, size);
  }
  void* on_device = device_memory<unsigned char>(PRODUCT_BYTES);
  CHECK(cudaMemcpy(on_device, bytes.data(), PRODUCT_BYTES, cudaMemcpyHostToDevice));
  return on_device;
}

using Kernel = void (*)(const uint4*, const unsigned char*, u32, u32, int, Mark*, u64*, u64*, float*);

int main() {
  Kernel kernels[] = {products<BRAIN>, products<BRAIN_128>, products<BRAIN_REGISTERS>, products<HALF>,
                      products<TF32_SHARED>, products<TF32_REGISTERS>, products<FP8>};
  int sms = multiprocessors();
  auto* regions = static_cast<unsigned char*>(random_memory(sms * REGION_BYTES));
  auto* marks = device_memory<Mark>(MARKS);
  auto* copied = device_memory<u64>(sms);
  auto* slips = device_memory<u64>(sms);
  auto* out = device_memory<float>(WORKERS);
  for (Kernel kernel : kernels)
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
  std::printf("type,data,busy_percent,pace,repeat,ns,clocks,copied_bytes,late_clocks\n");
  std::vector<Case> cases;
  for (Type type : {BRAIN, BRAIN_128, BRAIN_REGISTERS, HALF, TF32_SHARED, TF32_REGISTERS, FP8})
    for (int pace : {0, 384})
      for (int busy : {100, 85, 70, 50, 25}) cases.push_back({type, UNIT, busy, pace, 800});
  for (int pace : {1024, 256})
    for (int busy : {100, 85, 50, 25}) cases.push_back({BRAIN, UNIT, busy, pace, 800});
  for (Type type : {BRAIN, TF32_REGISTERS}) {
    cases.push_back({type, SIGNED, 100, 0, 800});
    cases.push_back({type, ZERO, 100, 0, 800});
  }
  for (int repeat = 0; repeat < 4; ++repeat)  // the first is thrown away
    for (const Case& of : cases) {
      static void* made[8][3];
      if (!made[of.type][of.data]) made[of.type][of.data] = matrices(of.type, of.data);
      u32 each = GROUPS * STEPS * (of.type == BRAIN_128 ? 64 : 128);
      u32 period = of.busy_percent == 100 ? 0 : each * 100 / of.busy_percent;
      u32 rounds = u32(of.microseconds * 1700.0 / (period ? period : each));
      CHECK(cudaMemset(marks, 0, MARKS * sizeof(Mark)));
      CHECK(cudaMemset(copied, 0, sms * sizeof(u64)));
      finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      kernels[of.type]<<<sms, THREADS, SHARED_BYTES>>>(
          static_cast<const uint4*>(made[of.type][of.data]), regions, rounds, period, of.pace, marks,
          copied, slips, out);
      finish();
      if (repeat == 0) continue;
      std::vector<Mark> seen(MARKS);
      std::vector<u64> bytes(sms), late(sms);
      CHECK(cudaMemcpy(seen.data(), marks, MARKS * sizeof(Mark), cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(bytes.data(), copied, sms * sizeof(u64), cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(late.data(), slips, sms * sizeof(u64), cudaMemcpyDeviceToHost));
      u64 total = 0, latest = 0;
      for (u64 b : bytes) total += b;
      for (u64 l : late) latest = l > latest ? l : latest;
      for (const Mark& mark : seen)
        if (mark.clock)
          std::printf("%s,%s,%d,%d,%d,%llu,%llu,%llu,%llu\n", NAMES[of.type], DATA[of.data],
                      of.busy_percent, of.pace, repeat, mark.ns, mark.clock, total, latest);
    }
}
