// The instruction caches: straight-line code of some KiB, run three times by one warp. The first run
// fetches it, the others find what the caches hold.

constexpr int INSTRUCTION_BYTES = 16;
constexpr int ROUNDS = 3;

__device__ __forceinline__ void add_up(float (&x)[4], float a, float b) {
    asm volatile("fma.rn.f32 %0, %0, %4, %5; fma.rn.f32 %1, %1, %4, %5;"
                 "fma.rn.f32 %2, %2, %4, %5; fma.rn.f32 %3, %3, %4, %5;"
                 : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]) : "f"(a), "f"(b));
}

template <int KIB>
__device__ __forceinline__ void straight(const float* values, u64* out, u32* sink) {
    const float a = values[0], b = values[1];
    float x[4] = {a, b, a + b, a - b};
#pragma unroll 1
    for (int round = 0; round < ROUNDS; ++round) {
        u64 begin, end;
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
#pragma unroll
        for (int i = 0; i < KIB * 1024 / INSTRUCTION_BYTES / 4; ++i) add_up(x, a, b);
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
        if (threadIdx.x == 0 && blockIdx.x == 0) out[round] = end - begin;
    }
    if (x[0] + x[1] + x[2] + x[3] == 1.0f) *sink = 1;
}

#define CODE(kib)                                                                            \
    extern "C" __global__ void __launch_bounds__(32)                                         \
        code_##kib(const float* values, u64* out, u32* sink) {                               \
        straight<kib>(values, out, sink);                                                    \
    }

CODE(2)
CODE(4)
CODE(8)
CODE(16)
CODE(32)
CODE(64)
CODE(96)
CODE(128)
CODE(192)
