// Latencies by pointer chasing: the address of each load is the result of the previous one, so that
// no loads overlap. One thread chases for several rounds; the last round is measured.

constexpr int UNROLL = 16;
constexpr int ROUNDS = 2;

// Links nodes that are `stride` bytes apart in the given order to a closed cycle.
extern "C" __global__ void link(unsigned char* data, const u32* order, u32 nodes, u32 stride) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nodes) return;
    const u32 next = i + 1 == nodes ? 0 : i + 1;
    u64* node = reinterpret_cast<u64*>(data + u64(order[i]) * stride);
    *node = reinterpret_cast<u64>(data + u64(order[next]) * stride);
}

// A block first reads `words` words from `data` on, which fills the caches of its multiprocessor;
// then its first thread chases from `address` on.
template <bool in_l1>
__device__ __forceinline__ void chase(const uint4* data, u64 words, u64 address, int steps,
                                      u32 mask, u32* sink, Chased* result) {
    u32 all = 0;
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) all = folded(all, data[i]);
    keep(all, mask, sink);
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int round = 0; round < ROUNDS; ++round) {
        const Clock begin = now();
#pragma unroll 1
        for (int step = 0; step < steps; step += UNROLL) {
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                if (in_l1) asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(address)::"memory");
                else asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(address)::"memory");
            }
        }
        result->end = address;  // waits for the last load
        tell(begin, &result->elapsed);
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    chase_l1(const uint4* data, u64 words, u64 address, int steps, u32 mask, u32* sink,
             Chased* result) {
    chase<true>(data, words, address, steps, mask, sink, result);
}

// bypassing L1
extern "C" __global__ void __launch_bounds__(1024)
    chase_l2(const uint4* data, u64 words, u64 address, int steps, u32 mask, u32* sink,
             Chased* result) {
    chase<false>(data, words, address, steps, mask, sink, result);
}

__device__ __forceinline__ bool runs_on(u32 wanted) {
    u32 multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    return multiprocessor == wanted;
}

// One multiprocessor reads all words, so that its part of the L2 holds them.
extern "C" __global__ void __launch_bounds__(1024)
    touch(const uint4* data, u64 words, u32 on, u32 mask, u32* sink) {
    if (!runs_on(on)) return;
    u32 all = 0;
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) all = folded(all, data[i]);
    keep(all, mask, sink);
}

// Cycles of a single L2 load per line, which distinguish near from far lines.
extern "C" __global__ void lines(const u32* data, u32 count, u32 on, u32* cycles) {
    __shared__ volatile u32 arrived;
    if (!runs_on(on)) return;
    for (u32 line = 0; line < count; ++line) {
        u32 begin, end, value;
        asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(data + line * 32) : "memory");
        arrived = value;  // waits for it
        asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
        cycles[line] = end - begin;
    }
}

extern "C" __global__ void chase_shared(const u32*, int steps, Chased* result) {
    constexpr u32 NODES = 1024;
    __shared__ u32 next[NODES];  // addresses
    const u32 base = u32(__cvta_generic_to_shared(next));
#pragma unroll 1
    for (u32 i = 0; i < NODES; ++i) next[i] = base + (i * 109u + 57u) % NODES * 4;
    u32 address = base;
    for (int round = 0; round < ROUNDS; ++round) {
        const Clock begin = now();
#pragma unroll 1
        for (int step = 0; step < steps; step += UNROLL) {
#pragma unroll
            for (int i = 0; i < UNROLL; ++i)
                asm volatile("ld.shared.u32 %0, [%0];" : "+r"(address)::"memory");
        }
        result->end = address - base;
        tell(begin, &result->elapsed);
    }
}
