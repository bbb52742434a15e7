// Constant memory: all lanes read one word (broadcast), or different words (divergent, serialized).

constexpr u32 WORDS = 256;  // 1 KiB, within the first level of the constant cache (2 KiB)
constexpr int UNROLL = 16;

// A cycle through all words: a linear congruential generator of full period (Hull and Dobell,
// "Random number generators", 1962: the increment is odd, the factor a multiple of 4 plus 1).
// Each word holds the byte offset of the next word: the result of a load addresses the next load.
struct Cycle {
    u32 next[WORDS];
    __device__ constexpr Cycle() : next{} {
        for (u32 i = 0; i < WORDS; ++i) next[i] = (i * 109u + 57u) % WORDS * 4;
    }
};
__constant__ Cycle cycle;

__device__ __forceinline__ u32 at(u32 offset) {
    return *reinterpret_cast<const u32*>(reinterpret_cast<const char*>(cycle.next) + offset);
}

__device__ __forceinline__ void walk(u32 first, u32 footprint, int trips, u32 mask, u32* sink,
                                     Clock* elapsed) {
    u32 all = 0, position = first;
    const Clock begin = now();
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) all ^= at(position + 4 * i);
        position += 4 * UNROLL;
        if (position >= footprint) position -= footprint;
    }
    tell(begin, elapsed);
    keep(all, mask, sink);
}

// Adding the lane's number times zero keeps the index out of the uniform registers, which have
// different load instructions.
extern "C" __global__ void __launch_bounds__(1024, 2)
    constant_broadcast(const u32* zero, u32 footprint, int trips, u32 mask, u32* sink, Clock* elapsed) {
    walk(threadIdx.x * *zero, footprint, trips, mask, sink, elapsed);
}

extern "C" __global__ void __launch_bounds__(1024, 2)
    constant_divergent(const u32*, u32 footprint, int trips, u32 mask, u32* sink, Clock* elapsed) {
    walk(threadIdx.x % 32 * 4, footprint, trips, mask, sink, elapsed);
}

// The address of each load is the result of the previous one.
extern "C" __global__ void chase_constant(const u32* zero, int steps, Chased* result) {
    u32 offset = threadIdx.x * *zero;
    for (int round = 0; round < 2; ++round) {  // the first fills the cache
        const Clock begin = now();
#pragma unroll 1
        for (int step = 0; step < steps; step += UNROLL) {
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) offset = at(offset);
        }
        result->end = offset;
        tell(begin, &result->elapsed);
    }
}
