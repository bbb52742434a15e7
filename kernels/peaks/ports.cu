// Bandwidth of as many multiprocessors as there are blocks: each passes over words of its own, again
// and again, past the L1. Words that fit the L2 show the port of a multiprocessor and the L2, words
// that do not show DRAM.

constexpr int UNROLL = 4;
constexpr int THREADS = 1024;

enum Mode { READ, WRITE, COPY };

template <Mode mode>
__device__ __forceinline__ void pass(const uint4* in, uint4* out, u64 words, int trips, u32 mask,
                                     u32* sink, Clock* elapsed) {
    const u64 first = blockIdx.x * words + threadIdx.x;
    u32 all = 0;
    const Clock begin = now();
    for (int trip = 0; trip < trips; ++trip) {
        for (u64 i = 0; i < words; i += THREADS * UNROLL) {
            uint4 values[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const uint4* from = in + first + i + u * THREADS;
                if (mode == WRITE) values[u] = make_uint4(trip, u32(i), trip, u32(i));
                else
                    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(values[u].x), "=r"(values[u].y), "=r"(values[u].z),
                                   "=r"(values[u].w)
                                 : "l"(from));
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                if (mode == READ) all = folded(all, values[u]);
                else out[first + i + u * THREADS] = values[u];
            }
        }
    }
    tell(begin, elapsed);
    if (mode == READ) keep(all, mask, sink);
}

#define PASS(name, mode)                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                 \
        name(const uint4* in, uint4* out, u64 words, int trips, u32 mask, u32* sink,         \
             Clock* elapsed) {                                                               \
        pass<mode>(in, out, words, trips, mask, sink, elapsed);                              \
    }

PASS(ports_read, READ)
PASS(ports_write, WRITE)
PASS(ports_copy, COPY)
