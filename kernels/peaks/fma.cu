// Fused multiply-adds of the CUDA cores: CHAINS independent chains per thread hide their latency.
//
// With a factor of -1 every value alternates between two values: bits keep toggling, and no value
// converges, overflows or becomes denormal, however long the kernel runs.

// Factor and addend are operands from constant memory: a DFMA that reads three pairs of registers
// has conflicts of register banks (92% of an H200's peak instead of 99.9%). They are variables,
// because with known values the compiler would generate additions.

constexpr int CHAINS = 8;
constexpr int REPEAT = 63;  // odd: after an odd number of trips x is 1 - x, which shows that it ran

__constant__ double factor_fp64 = -1.0, addend_fp64 = 1.0;
__constant__ float factor_fp32 = -1.0f, addend_fp32 = 1.0f;
__constant__ u32 factor_fp16 = 0xBC00BC00u, addend_fp16 = 0x3C003C00u;  // two float16 each

struct Fp64 {
    typedef double Value;
    static __device__ __forceinline__ double step(double x) {
        return fma(x, factor_fp64, addend_fp64);
    }
};

struct Fp32 {
    typedef float Value;
    static __device__ __forceinline__ float step(float x) {
        return fmaf(x, factor_fp32, addend_fp32);
    }
};

struct Fp16 {
    typedef u32 Value;
    static __device__ __forceinline__ u32 step(u32 x) {
        asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(factor_fp16), "r"(addend_fp16));
        return x;
    }
};

template <typename Kind>
__device__ __forceinline__ void chains(const typename Kind::Value* values, int trips,
                                       typename Kind::Value* out, Clock* elapsed) {
    typename Kind::Value x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = values[c * blockDim.x + threadIdx.x];
    const Clock begin = now();
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int r = 0; r < REPEAT; ++r)
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) x[c] = Kind::step(x[c]);
    }
    tell(begin, elapsed);
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        out[(u64(blockIdx.x) * CHAINS + c) * blockDim.x + threadIdx.x] = x[c];
}

#define FMA(name, kind)                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                 \
        name(const kind::Value* values, u32, int trips, u32, kind::Value* out,            \
             Clock* elapsed) {                                                            \
        chains<kind>(values, trips, out, elapsed);                                        \
    }

FMA(fma_fp64, Fp64)
FMA(fma_fp32, Fp32)
FMA(fma_fp16, Fp16)

// The latency of one FMA: each needs the result of the previous one.
extern "C" __global__ void chain_fp32(const float* values, int steps, Chased* result) {
    float x = *values;
    for (int round = 0; round < 2; ++round) {  // the first fills the instruction cache
        const Clock begin = now();
#pragma unroll 1
        for (int step = 0; step < steps; step += REPEAT) {
#pragma unroll
            for (int i = 0; i < REPEAT; ++i) x = Fp32::step(x);
        }
        result->end = __float_as_uint(x);
        tell(begin, &result->elapsed);
    }
}
