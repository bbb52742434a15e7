// The rate and the latency of each pipe of a multiprocessor, by instructions that only it executes.
//
// One block runs on one multiprocessor. Each warp reports the clock at its start and its end, so
// that the host finds the first start and the last end. Eight independent chains per thread show the
// rate, one chain of one warp the latency. The instructions are volatile PTX, since the compiler
// would combine plain ones.

constexpr int REPEAT = 32;

struct Span {
    u64 begin, end;
};

template <typename Pipe, int CHAINS>
__device__ __forceinline__ void pipe(const u32* values, int trips, u32 mask, u32* sink, Span* spans) {
    typename Pipe::Value x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = Pipe::start(values[0] + 37 * c + threadIdx.x);
    const typename Pipe::Value a = Pipe::start(values[1]), b = Pipe::start(values[2]);
    __syncthreads();
    u64 begin, end;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int r = 0; r < REPEAT; ++r)
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) Pipe::step(x[c], a, b);
    }
    u32 all = 0;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) all ^= Pipe::bits(x[c]);
    // The last results are needed before the clock is read.
    asm volatile("{ .reg .u32 t; xor.b32 t, %1, 1; mov.u64 %0, %%clock64; }"
                 : "=l"(end) : "r"(all) : "memory");
    if (threadIdx.x % 32 == 0) spans[threadIdx.x / 32] = {begin, end};
    keep(all, mask, sink);
}

#define PIPE(name, type, from_bits, to_bits, instruction, in, out)                          \
    struct Pipe_##name {                                                                    \
        typedef type Value;                                                                 \
        static __device__ __forceinline__ type start(u32 value) { return from_bits; }       \
        static __device__ __forceinline__ u32 bits(type x) { return to_bits; }              \
        static __device__ __forceinline__ void step(type& x, type a, type b) {              \
            asm volatile(instruction : out(x) : in(a), in(b));                              \
        }                                                                                   \
    };                                                                                      \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                   \
        rate_##name(const u32* values, int trips, u32 mask, u32* sink, Span* spans) {       \
        pipe<Pipe_##name, 8>(values, trips, mask, sink, spans);                                    \
    }                                                                                       \
    extern "C" __global__ void latency_##name(const u32* values, int trips, u32 mask,       \
                                              u32* sink, Span* spans) {                     \
        pipe<Pipe_##name, 1>(values, trips, mask, sink, spans);                                    \
    }

#define FLOAT(name, instruction) \
    PIPE(name, float, 1.0f + value * 1e-6f, __float_as_uint(x), instruction, "f", "+f")
#define BITS(name, instruction) PIPE(name, u32, value, x, instruction, "r", "+r")

FLOAT(fma, "fma.rn.f32 %0, %0, %1, %2;")
BITS(alu, "lop3.b32 %0, %0, %1, %2, 0x96;")
BITS(imad, "mad.lo.u32 %0, %0, %1, %2;")
PIPE(fp64, double, 1.0 + value * 1e-6, u32(__double_as_longlong(x) >> 20),
     "fma.rn.f64 %0, %0, %1, %1;", "d", "+d")  // a third operand would wait for the register file
BITS(fp16, "fma.rn.f16x2 %0, %0, %1, %2;")
#if __CUDA_ARCH__ >= 800
BITS(bf16, "fma.rn.bf16x2 %0, %0, %1, %2;")
BITS(redux, "redux.sync.add.s32 %0, %0, 0xFFFFFFFF;")
#endif
FLOAT(mufu, "ex2.approx.ftz.f32 %0, %0;")
BITS(f2i, "{ .reg .f32 t; mov.b32 t, %0; cvt.rni.s32.f32 %0, t; }")
BITS(i2f, "{ .reg .f32 t; cvt.rn.f32.s32 t, %0; mov.b32 %0, t; }")
BITS(popc, "popc.b32 %0, %0;")
BITS(shuffle, "shfl.sync.bfly.b32 %0, %0, 1, 0x1F, 0xFFFFFFFF;")

// Instructions of two pipes in turn: neither limits, so that the schedulers do.
struct issue {
    typedef uint2 Value;
    static __device__ __forceinline__ uint2 start(u32 value) {
        return make_uint2(__float_as_uint(1.0f + value * 1e-6f), value);
    }
    static __device__ __forceinline__ u32 bits(uint2 x) { return x.x ^ x.y; }
    static __device__ __forceinline__ void step(uint2& x, uint2 a, uint2 b) {
        float f = __uint_as_float(x.x);
        asm volatile("fma.rn.f32 %0, %0, %2, %3; lop3.b32 %1, %1, %4, %5, 0x96;"
                     : "+f"(f), "+r"(x.y)
                     : "f"(__uint_as_float(a.x)), "f"(__uint_as_float(b.x)), "r"(a.y), "r"(b.y));
        x.x = __float_as_uint(f);
    }
};

extern "C" __global__ void __launch_bounds__(1024, 1)
    rate_issue(const u32* values, int trips, u32 mask, u32* sink, Span* spans) {
    pipe<issue, 8>(values, trips, mask, sink, spans);
}

// Loads whose lanes read words that are `stride` words apart, from shared memory or from the L1. They
// repeat a few addresses. The compiler would keep what it has read, so the address depends on a
// `zero` that it does not know, and neighbours are too far apart to become one wide load.
constexpr int PLACES = 8;
constexpr u32 PLACE_WORDS = 32 * 33;

template <bool shared>
__device__ __forceinline__ void lane_loads(const u32* values, int trips, u32 stride, u32 zero,
                                           u32 mask, u32* sink, Span* spans) {
    __shared__ u32 words[shared ? PLACES * PLACE_WORDS : 1];
    u32 all = 0;
    for (u32 i = threadIdx.x; i < PLACES * PLACE_WORDS; i += blockDim.x) {
        if (shared) words[i] = values[i];
        else all ^= values[i];
    }
    u64 address = shared ? u64(__cvta_generic_to_shared(words)) : reinterpret_cast<u64>(values);
    address += threadIdx.x % 32 * 4 * stride;
    if (all == 1 && trips == 0) *sink = all;  // never: the loads fill the cache
    all = 0;
    __syncthreads();
    u64 begin, end;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    for (int trip = 0; trip < trips; ++trip) {
        u32 read[REPEAT];
#pragma unroll
        for (int r = 0; r < REPEAT; ++r) {
            if (r % PLACES == 0) address += zero;
            const u64 place = address + r % PLACES * PLACE_WORDS * 4;
            if (shared) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(read[r]) : "r"(u32(place)));
            else asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(read[r]) : "l"(place));
        }
#pragma unroll
        for (int r = 0; r < REPEAT; ++r) all += read[r];
    }
    asm volatile("{ .reg .u32 t; xor.b32 t, %1, 1; mov.u64 %0, %%clock64; }"
                 : "=l"(end) : "r"(all) : "memory");
    if (threadIdx.x % 32 == 0) spans[threadIdx.x / 32] = {begin, end};
    if ((all & mask) == mask) atomicAdd(sink, all);
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    loads_shared(const u32* values, int trips, u32 stride, u32 zero, u32 mask, u32* sink,
             Span* spans) {
    lane_loads<true>(values, trips, stride, zero, mask, sink, spans);
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    loads_l1(const u32* values, int trips, u32 stride, u32 zero, u32 mask, u32* sink,
             Span* spans) {
    lane_loads<false>(values, trips, stride, zero, mask, sink, spans);
}

// `__syncthreads()` again and again.
extern "C" __global__ void __launch_bounds__(1024, 1)
    barriers(const u32*, int trips, u32 mask, u32* sink, Span* spans) {
    __syncthreads();
    u64 begin, end;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int r = 0; r < REPEAT; ++r) __syncthreads();
    }
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
    if (threadIdx.x % 32 == 0) spans[threadIdx.x / 32] = {begin, end};
}
