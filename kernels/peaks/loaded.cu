// The latency of loads from DRAM while all multiprocessors load and store.

// What the warps of all multiprocessors waited.
struct Waited {
    u64 clocks;
    u64 loads;
};

// The warps read `words`, one load of a warp after the other; after each `loads_per_store` of them a
// warp stores what it has read last where it was read from; never for 0.
extern "C" __global__ void __launch_bounds__(1024)
    loaded(const uint4* in, uint4* out, u64 words, u32 loads_per_store, Waited* waited,
           u32* sink) {
    const u64 threads = u64(gridDim.x) * blockDim.x;
    u64 clocks = 0;
    u32 loads = 0, used = 0, turn = 0;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += threads) {
        uint4 value;
        u32 all_here;
        const u32 begin = cycles_now();
        asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                     : "l"(in + i) : "memory");
        // a vote needs the values of all lanes
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xFFFFFFFF; }"
                     : "=r"(all_here) : "r"(folded(0, value)) : "memory");
        used += all_here >> 31;
        asm volatile("" ::"r"(used) : "memory");
        clocks += cycles_now() - begin;
        ++loads;
        if (loads_per_store && ++turn == loads_per_store) {
            out[i] = value;
            turn = 0;
        }
    }
    if (used == loads + 1) *sink = used;  // never: but the votes must be computed
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&waited->clocks, clocks);
        atomicAdd(&waited->loads, u64(loads));
    }
}
