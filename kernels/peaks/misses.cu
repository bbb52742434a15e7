// Latency and rate of loads from random addresses.

// One warp loads single words, each lane group from another random sector, and waits for them. The
// clock shows how long the slowest takes. Lane i reads sector i % sectors, so that the number of
// lanes is always 32.
template <bool in_l1>
__device__ __forceinline__ void timed_loads(const u32* data, u32 sector_mask, u32 sectors, u32 seed,
                                            u32 samples, u32* cycles, u32* sink) {
    const u32 lane = threadIdx.x % 32;
    u32 all = 0;
    for (u32 sample = 0; sample < samples; ++sample) {
        const u32 sector = hashed(seed + sample, lane % sectors) & sector_mask;
        const u32* address = data + u64(sector) * 8;
        u32 value, waited;
        __syncwarp();
        const u32 begin = cycles_now();
        if (in_l1) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
        else asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
        // a vote needs the values of all lanes
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xFFFFFFFF; }"
                     : "=r"(waited) : "r"(value) : "memory");
        all ^= waited;
        asm volatile("" ::"r"(all) : "memory");
        const u32 end = cycles_now();
        if (lane == 0) cycles[sample] = end - begin;
    }
    if (lane == 0) *sink = all;
}

extern "C" __global__ void __launch_bounds__(32)
    misses(const u32* data, u32 sector_mask, u32 sectors, u32 seed, u32 samples, u32* cycles,
           u32* sink) {
    timed_loads<false>(data, sector_mask, sectors, seed, samples, cycles, sink);
}

extern "C" __global__ void __launch_bounds__(32)
    hits(const u32* data, u32 sector_mask, u32 sectors, u32 seed, u32 samples, u32* cycles,
         u32* sink) {
    timed_loads<true>(data, sector_mask, sectors, seed, samples, cycles, sink);
}

// Every multiprocessor reads every lines-th line, so that the L2 holds them all.
extern "C" __global__ void __launch_bounds__(256)
    spread_lines(const u32* data, u32 lines, u32* sink) {
    u32 all = 0;
    for (u32 line = blockIdx.x * 8 + threadIdx.x / 32; line < lines; line += gridDim.x * 8) {
        u32 value;
        asm volatile("ld.global.cg.u32 %0, [%1];"
                     : "=r"(value) : "l"(data + u64(line) * 32 + threadIdx.x % 32));
        all ^= value;
    }
    if (all == 1) *sink = all;
}

// All multiprocessors read `sectors` sectors at random aligned places; a thread reads one word.
constexpr int UNROLL = 8;

extern "C" __global__ void __launch_bounds__(1024, 2)
    gather(const u32* data, u32 place_mask, u32 sectors, u32 seed, int trips, u32 mask, u32* sink) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u32 all = 0;
    for (int trip = 0; trip < trips; ++trip) {
        u32 values[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const u32 place = hashed(seed + trip * UNROLL + i, thread / sectors) & place_mask;
            const u32* address = data + (u64(place) * sectors + thread % sectors) * 8;
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(values[i]) : "l"(address));
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) all ^= values[i];
    }
    keep(all, mask, sink);
}
