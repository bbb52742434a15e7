// Clocks of a sub-core for groups of instructions in a loop, for benchmarks/microbenchmarks.py:
// which instructions keep others from being issued.
//
// A group is one instruction `first`, then `thens` instructions `then`. One block of 4, 8 or 16
// warps has 1, 2 or 4 on each sub-core. Eight values of each kind are computed in turn, so that a
// group waits for the eighth before it. `clocks` are those per group of a warp, from the first
// warp's start to the last one's end, in the second of two rounds.
#include "device.cuh"

constexpr int VALUES = 8, GROUPS = 16, TRIPS = 128, BUFFER_WORDS = 1024;

// By the names of the machine code, but for those with a comment.
enum Instruction {
  FFMA,
  IMAD,
  WIDE,  // IMAD.WIDE.U32 without an addend, and LOP3 of its halves
  HI,    // IMAD.HI.U32
  LOP,   // LOP3.LUT
  SHF,
  DFMA,
  DADD,
  MUFU,  // MUFU.EX2
  I2F,   // I2FP.F32.S32
  POPC,
  ISETP,  // and SEL
  CARRY,  // IADD3 and IADD3.X: an addition of 64 bits
  HFMA2,
  IADD3,
  NONE,
  LDS,
  WIDEADD,  // IMAD.WIDE by a constant, IADD3 and IMAD.X of a thread's own addend, and LOP3
  FFMAC,    // FFMA with a factor from constant memory
  WIDEC,    // IMAD.WIDE by a constant that adds two registers, and LOP3
  LDG,      // LDG.64 of one address by all lanes
  LDC,
};
constexpr const char* NAMES[] = {
    "FFMA",  "IMAD",  "WIDE",  "HI",   "LOP", "SHF",     "DFMA",  "DADD",  "MUFU", "I2F", "POPC",
    "ISETP", "CARRY", "HFMA2", "IADD3", "NONE", "LDS", "WIDEADD", "FFMAC", "WIDEC", "LDG", "LDC"};

__constant__ float FACTORS[16];
__constant__ u64 BASE;
__constant__ u32 OFFSETS[64];  // of themselves, in bytes

// The values that the instructions compute, by their kinds.
struct Values {
  float sum[VALUES];
  u32 product[VALUES];
  u64 wide[VALUES];
  u32 bits[VALUES];
  double real[VALUES];
  float power[VALUES];
  u32 half[VALUES];
  u32 place[VALUES];  // in shared or constant memory
  u64 addend;
  u64 address[VALUES];
};

template <int OF>
__device__ __forceinline__ void execute(Values& v, int i, u32 x, u32 y, float c, double d) {
  if constexpr (OF == FFMA)
    asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(v.sum[i]) : "f"(c), "f"(c));
  if constexpr (OF == IMAD)
    asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(v.product[i]) : "r"(x), "r"(y));
  if constexpr (OF == WIDE)
    asm volatile(
        "{.reg .u64 w; .reg .u32 a, b; mul.wide.u32 w, %0, %1; mov.b64 {a, b}, w; "
        "lop3.b32 %0, a, b, %2, 0x96;}"
        : "+r"(v.bits[i])
        : "r"(y), "r"(x));
  if constexpr (OF == WIDEADD)
    asm volatile(
        "{.reg .u64 w; .reg .u32 a, b; mad.wide.s32 w, %0, 12, %1; mov.b64 {a, b}, w; "
        "lop3.b32 %0, a, b, %2, 0x96;}"
        : "+r"(v.bits[i])
        : "l"(v.addend), "r"(x));
  if constexpr (OF == WIDEC) {
    u64 sum = u64((long long)(int)v.bits[i] * 12) + BASE;
    asm volatile("{.reg .u32 a, b; mov.b64 {a, b}, %1; lop3.b32 %0, a, b, %2, 0x96;}"
                 : "=r"(v.bits[i])
                 : "l"(sum), "r"(x));
  }
  if constexpr (OF == LDG)
    asm volatile("ld.global.u64 %0, [%0];" : "+l"(v.address[i]));
  if constexpr (OF == LDC)
    v.place[i] = *(const u32*)((const char*)OFFSETS + v.place[i]);
  if constexpr (OF == FFMAC)
    v.sum[i] = fmaf(v.sum[i], FACTORS[i], c);
  if constexpr (OF == HI)
    asm volatile("mad.hi.u32 %0, %0, %1, %2;" : "+r"(v.product[i]) : "r"(x), "r"(y));
  if constexpr (OF == LOP)
    asm volatile("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(v.bits[i]) : "r"(x), "r"(y));
  if constexpr (OF == SHF)
    asm volatile("shf.l.wrap.b32 %0, %0, %1, 5;" : "+r"(v.bits[i]) : "r"(x));
  if constexpr (OF == DFMA)
    asm volatile("fma.rn.f64 %0, %0, %1, %2;" : "+d"(v.real[i]) : "d"(d), "d"(d));
  if constexpr (OF == DADD)
    asm volatile("add.rn.f64 %0, %0, %1;" : "+d"(v.real[i]) : "d"(d));
  if constexpr (OF == MUFU)
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(v.power[i]));
  if constexpr (OF == I2F)
    asm volatile("{.reg .f32 z; cvt.rn.f32.s32 z, %0; mov.b32 %0, z;}" : "+r"(v.half[i]));
  if constexpr (OF == POPC)
    asm volatile("popc.b32 %0, %0;" : "+r"(v.half[i]));
  if constexpr (OF == ISETP)
    asm volatile("{.reg .pred p; setp.lt.u32 p, %0, %1; selp.b32 %0, %2, %0, p;}"
                 : "+r"(v.bits[i])
                 : "r"(x), "r"(y));
  if constexpr (OF == CARRY)
    asm volatile(
        "{.reg .u32 a, b; mov.b64 {a, b}, %0; add.cc.u32 a, a, %1; addc.u32 b, b, %2; "
        "mov.b64 %0, {a, b};}"
        : "+l"(v.wide[i])
        : "r"(x), "r"(y));
  if constexpr (OF == HFMA2)
    asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(v.half[i]) : "r"(x));
  if constexpr (OF == IADD3)
    asm volatile("{.reg .u32 a; add.u32 a, %0, %1; add.u32 %0, a, %2;}"
                 : "+r"(v.bits[i])
                 : "r"(x), "r"(y));
  if constexpr (OF == LDS)
    asm volatile("ld.shared.u32 %0, [%0];" : "+r"(v.place[i]));
}

// `ring` has words that hold their own addresses, as `buffer` has in shared memory.
template <int FIRST, int THEN, int THENS>
__global__ void __launch_bounds__(512)
    repeat_groups(u32 x, u32 y, float c, double d, int trips, u32* out, u64* clocks, u64* ring) {
  __shared__ u32 buffer[BUFFER_WORDS];
  __shared__ u64 first, last;
  constexpr bool loads_global = FIRST == LDG || THEN == LDG;
  constexpr bool loads_constant = FIRST == LDC || THEN == LDC;
  u32 zero = threadIdx.x >> 12;  // which the compiler does not know
  Values v;
  for (int i = threadIdx.x; i < BUFFER_WORDS; i += blockDim.x)
    buffer[i] = u32(__cvta_generic_to_shared(buffer)) + 4 * i;
  u32 lane_place = u32(__cvta_generic_to_shared(buffer)) + threadIdx.x % 32 * 4;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < VALUES; ++i) {
    v.sum[i] = threadIdx.x + i;
    v.product[i] = (threadIdx.x + 1) * (i + 3);
    v.wide[i] = (u64(threadIdx.x * x + i) << 32) + threadIdx.x * y + 3 * i;
    v.bits[i] = threadIdx.x ^ i * y;
    v.real[i] = threadIdx.x + i;
    v.power[i] = threadIdx.x * 0.01f + i;
    v.half[i] = threadIdx.x + 77 * i;
    v.place[i] = loads_constant ? 4 * i + zero * 4 : lane_place + 128 * i;
    v.address[i] = u64(ring + i * 16 + zero);
    if (loads_global)
      ring[i * 16] = v.address[i];
  }
  v.addend = threadIdx.x * d;
  if (threadIdx.x == 0) {
    first = ~0ull;
    last = 0;
  }
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      first = ~0ull;
      last = 0;
    }
    __syncthreads();
    u64 begin = clock_of_sm();
#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
      for (int group = 0; group < GROUPS; ++group) {
        execute<FIRST>(v, group % VALUES, x, y, c, d);
#pragma unroll
        for (int k = 0; k < THENS; ++k)
          execute<THEN>(v, (group * THENS + k) % VALUES, x, y, c, d);
      }
    }
    u64 end = clock_of_sm();
    if (threadIdx.x % 32 == 0) {
      atomicMin(&first, begin);
      atomicMax(&last, end);
    }
  }
  __syncthreads();
  u32 used = 0;  // so that nothing is left out
#pragma unroll
  for (int i = 0; i < VALUES; ++i)
    used ^= __float_as_uint(v.sum[i]) ^ v.product[i] ^ u32(v.wide[i]) ^ u32(v.wide[i] >> 32) ^
            v.bits[i] ^ u32(__double_as_longlong(v.real[i])) ^
            u32(__double_as_longlong(v.real[i]) >> 32) ^ __float_as_uint(v.power[i]) ^ v.half[i] ^
            v.place[i] ^ u32(v.address[i]) ^ u32(v.address[i] >> 32);
  out[threadIdx.x] = used;
  if (threadIdx.x == 0)
    *clocks = last - first;
}

template <int FIRST, int THEN, int THENS>
void measure() {
  u32* out = device_memory<u32>(16384);
  u64* ring = reinterpret_cast<u64*>(out + 8192);
  u64* clocks;
  CHECK(cudaMallocManaged(&clocks, sizeof *clocks));
  for (int warps : {4, 8, 16}) {
    repeat_groups<FIRST, THEN, THENS><<<1, warps * 32>>>(0x1234567, 0x9abcdef, 1.0001f, 1.00001,
                                                         TRIPS, out, clocks, ring);
    finish();
    double groups = double(TRIPS) * GROUPS * (warps / 4);
    std::printf("%s,%s,%d,%d,%.3f\n", NAMES[FIRST], NAMES[THEN], THENS, warps, *clocks / groups);
  }
  CHECK(cudaFree(out));
  CHECK(cudaFree(clocks));
}

template <int... FIRSTS>
void alone() {
  (measure<FIRSTS, NONE, 0>(), ...);
}

template <int FIRST, int THEN, int... THENS>
void beside() {
  (measure<FIRST, THEN, THENS>(), ...);
}

int main() {
  u32 offsets[64];
  for (int i = 0; i < 64; ++i)
    offsets[i] = 4 * i;
  CHECK(cudaMemcpyToSymbol(OFFSETS, offsets, sizeof offsets));
  std::printf("first,then,thens,warps,clocks\n");
  alone<LDG>();
  beside<LDG, FFMA, 1, 3>();
  beside<LDG, LOP, 2>();
  beside<WIDE, LDG, 1, 2>();
  beside<LDG, IMAD, 2>();
  alone<LDC>();
  beside<LDC, FFMA, 3, 7>();
  beside<LDC, LOP, 3>();
  beside<WIDE, LDC, 1>();
  beside<LDC, IMAD, 3>();
  alone<FFMA, IMAD, WIDE, HI, LOP, DFMA, MUFU, HFMA2, I2F, CARRY, ISETP, IADD3, FFMAC>();
  beside<FFMAC, LOP, 1>();
  beside<FFMAC, FFMA, 1>();
  beside<FFMAC, IMAD, 1>();
  alone<WIDEC>();
  beside<WIDEC, FFMA, 2, 5>();
  alone<WIDEADD>();
  beside<WIDEADD, FFMA, 1, 2, 3, 5>();
  beside<WIDEADD, LOP, 1, 2, 3>();
  beside<WIDEADD, IMAD, 1>();
  beside<WIDE, FFMA, 1, 2, 3, 5, 7>();
  beside<WIDE, LOP, 1, 2, 3, 4>();
  beside<WIDE, IMAD, 1, 3>();
  beside<WIDE, CARRY, 1>();
  beside<WIDE, LDS, 1, 3>();
  beside<IMAD, FFMA, 1, 2, 3>();
  beside<IMAD, LOP, 1, 2>();
  beside<HI, FFMA, 3>();
  beside<HI, LOP, 2>();
  beside<LOP, FFMA, 1, 2, 3>();
  beside<DFMA, FFMA, 1, 3>();
  beside<DFMA, LOP, 1>();
  beside<DFMA, IMAD, 1>();
  beside<DFMA, WIDE, 1>();
  beside<DADD, FFMA, 3>();
  beside<MUFU, FFMA, 3, 7>();
  beside<MUFU, LOP, 3>();
  beside<MUFU, WIDE, 1, 2>();
  beside<I2F, FFMA, 3>();
  beside<I2F, LOP, 2>();
  beside<POPC, LOP, 3>();
  beside<POPC, FFMA, 7>();
  beside<HFMA2, FFMA, 1>();
  beside<HFMA2, LOP, 1>();
  beside<LDS, FFMA, 3>();
  beside<LDS, LOP, 2>();
  beside<LDS, LDS, 1>();
  beside<SHF, FFMA, 1>();
  beside<ISETP, FFMA, 2>();
  beside<CARRY, FFMA, 2>();
  return 0;
}
