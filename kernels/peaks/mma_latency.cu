// Tensor cores through mma.sync: chains of products that add to their own result. Eight warps with
// four chains each show the rate, one warp with one chain the latency.

constexpr int REPEAT = 32;

struct Span {
    u64 begin, end;
};

#define MMA(name, chains, kind, instruction, registers, put)                                  \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                     \
        kind##_##name(const u32* values, int trips, u32 mask, u32* sink, Span* spans) {       \
        const u32 a0 = values[0], a1 = values[1], a2 = values[2], a3 = values[3];             \
        const u32 b0 = values[4], b1 = values[5];                                             \
        registers;                                                                            \
        __syncthreads();                                                                      \
        u64 begin, end;                                                                       \
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");                       \
        for (int trip = 0; trip < trips; ++trip) {                                            \
            _Pragma("unroll") for (int r = 0; r < REPEAT; ++r)                                \
                _Pragma("unroll") for (int c = 0; c < chains; ++c) instruction;               \
        }                                                                                     \
        u32 all = 0;                                                                          \
        _Pragma("unroll") for (int c = 0; c < chains; ++c) put;                               \
        asm volatile("{ .reg .u32 t; xor.b32 t, %1, 1; mov.u64 %0, %%clock64; }"              \
                     : "=l"(end) : "r"(all) : "memory");                                      \
        if (threadIdx.x % 32 == 0) spans[threadIdx.x / 32] = {begin, end};                    \
        keep(all, mask, sink);                                                                \
    }

#define FLOATS(text, chains)                                                                  \
    asm volatile("mma.sync.aligned." text                                                     \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])                 \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define TAKE_FLOATS all ^= __float_as_uint(d[c][0] + d[c][1] + d[c][2] + d[c][3])

#define BOTH_FLOATS(name, text)                                                               \
    MMA(name, 4, rate, FLOATS(text, 4), float d[4][4] = {}, TAKE_FLOATS)                      \
    MMA(name, 1, latency, FLOATS(text, 1), float d[1][4] = {}, TAKE_FLOATS)

#if __CUDA_ARCH__ >= 800
BOTH_FLOATS(fp16, "m16n8k16.row.col.f32.f16.f16.f32")
BOTH_FLOATS(bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
BOTH_FLOATS(tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")

#define INTEGERS                                                                              \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"                            \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+r"(d[c][0]), "+r"(d[c][1]), "+r"(d[c][2]), "+r"(d[c][3])                 \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define TAKE_INTEGERS all ^= d[c][0] ^ d[c][1] ^ d[c][2] ^ d[c][3]
MMA(int8, 4, rate, INTEGERS, u32 d[4][4] = {}, TAKE_INTEGERS)
MMA(int8, 1, latency, INTEGERS, u32 d[1][4] = {}, TAKE_INTEGERS)

#define DOUBLES                                                                               \
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" \
                 : "+d"(d[c][0]), "+d"(d[c][1])                                               \
                 : "d"(__hiloint2double(a0, a1)), "d"(__hiloint2double(b0, b1)))
#define TAKE_DOUBLES all ^= u32(__double_as_longlong(d[c][0] + d[c][1]))
MMA(fp64, 4, rate, DOUBLES, double d[4][2] = {}, TAKE_DOUBLES)
MMA(fp64, 1, latency, DOUBLES, double d[1][2] = {}, TAKE_DOUBLES)
#endif
