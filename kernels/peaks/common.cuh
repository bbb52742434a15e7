// The common part of the micro-benchmarks, which is placed before the text of each.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Clock {
    u64 cycles;       // of the multiprocessor
    u64 nanoseconds;  // of the GPU's timer, which does not depend on the clock
};

__device__ __forceinline__ Clock now() {
    Clock clock;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock.cycles));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(clock.nanoseconds));
    return clock;
}

// One thread reports the duration by both clocks: their ratio is the multiprocessor's frequency.
__device__ __forceinline__ void tell(Clock begin, Clock* elapsed) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const Clock end = now();
        elapsed->cycles = end.cycles - begin.cycles;
        elapsed->nanoseconds = end.nanoseconds - begin.nanoseconds;
    }
}

// The result of a chain of dependent operations.
struct Chased {
    Clock elapsed;
    u64 end;  // the last address, which shows that the chain was complete
};

// The compiler drops a result that is not used. With a mask of 0 the results of all threads are
// combined, for verification; with all bits set almost none are, but all must be computed.
__device__ __forceinline__ void keep(u32 value, u32 mask, u32* sink) {
    if ((value & mask) == mask) atomicXor(sink, value);
}

__device__ __forceinline__ u32 folded(u32 all, uint4 value) {
    all ^= value.x ^ value.y;  // two three-input LOP3
    return all ^ value.z ^ value.w;
}

__device__ __forceinline__ u32 cycles_now() {
    u32 cycles;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles)::"memory");
    return cycles;
}

__device__ __forceinline__ u32 multiprocessor() {
    u32 number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

// A hash of two numbers (the finalizer of MurmurHash3), for random addresses.
__device__ __forceinline__ u32 hashed(u32 first, u32 second) {
    u32 x = first * 0x9E3779B9u ^ second;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}
