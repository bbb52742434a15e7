// Tensor cores through mma.sync: a warp multiplies fragments in its registers.
// On Hopper this reaches about two thirds of the peak; the rest needs wgmma.

constexpr int CHAINS = 8;
constexpr int REPEAT = 4;
constexpr int THREADS = 256;

#define MMA(name, instruction)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                 \
        name(const u32* fragments, u32, int trips, u32, float* out, Clock* elapsed) {        \
        u32 a[4], b[CHAINS][2];                                                              \
        float d[CHAINS][4];                                                                  \
        const u32* mine = fragments + threadIdx.x;                                           \
        _Pragma("unroll") for (int i = 0; i < 4; ++i) a[i] = mine[i * THREADS];              \
        _Pragma("unroll") for (int c = 0; c < CHAINS; ++c) {                                 \
            b[c][0] = mine[(4 + 2 * c) * THREADS];                                           \
            b[c][1] = mine[(5 + 2 * c) * THREADS];                                           \
            _Pragma("unroll") for (int i = 0; i < 4; ++i) d[c][i] = 0;                       \
        }                                                                                    \
        const Clock begin = now();                                                           \
        for (int trip = 0; trip < trips; ++trip) {                                           \
            _Pragma("unroll") for (int i = 0; i < REPEAT * CHAINS; ++i) {                    \
                const int c = i % CHAINS;                                                    \
                asm volatile(instruction                                                     \
                             " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                             : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])    \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[c][0]),     \
                               "r"(b[c][1]));                                                \
            }                                                                                \
        }                                                                                    \
        tell(begin, elapsed);                                                                \
        float sum = 0;                                                                       \
        _Pragma("unroll") for (int i = 0; i < CHAINS * 4; ++i) sum += d[i / 4][i % 4];       \
        out[u64(blockIdx.x) * THREADS + threadIdx.x] = sum;                                  \
    }

MMA(mma_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
MMA(mma_fp16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
MMA(mma_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
