// What the micro-benchmarks share; it is put in front of each of them.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Clock {
    u64 cycles;       // of the multiprocessor
    u64 nanoseconds;  // of the GPU's timer, which ticks alike whatever the clock does
};

__device__ __forceinline__ Clock now() {
    Clock clock;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock.cycles));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(clock.nanoseconds));
    return clock;
}

// One thread tells how long its multiprocessor ran, by both clocks: their ratio is its frequency.
__device__ __forceinline__ void tell(Clock begin, Clock* elapsed) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const Clock end = now();
        elapsed->cycles = end.cycles - begin.cycles;
        elapsed->nanoseconds = end.nanoseconds - begin.nanoseconds;
    }
}

// What a chase of dependent operations gives.
struct Chased {
    Clock elapsed;
    u64 end;  // where it came to: shows that it went all the way
};

// A result that nobody reads is never computed. With a mask of 0 every thread's is combined, for
// verification; with all bits set, almost none's is, and yet each must be there to be looked at.
__device__ __forceinline__ void keep(u32 value, u32 mask, u32* sink) {
    if ((value & mask) == mask) atomicXor(sink, value);
}

__device__ __forceinline__ u32 folded(u32 all, uint4 value) {
    all ^= value.x ^ value.y;  // two three-input LOP3
    return all ^ value.z ^ value.w;
}
