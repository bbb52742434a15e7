// Read bandwidth of L1 and L2: every block reads a footprint that stays in the cache, repeatedly.

constexpr int UNROLL = 8;
constexpr int THREADS = 512;
constexpr u32 TILE = THREADS * UNROLL;

template <bool in_l1>
__device__ __forceinline__ uint4 load(const uint4* address) {
    uint4 value;
    if (in_l1) {
        asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(address));
    } else {
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(address));
    }
    return value;
}

// Reads the words [0, footprint) cyclically, one tile per trip: from `first` on, and `stride` tiles
// further in each trip.
template <bool in_l1>
__device__ __forceinline__ void walk(const uint4* data, u32 footprint, u32 first, u32 stride, int trips,
                                     u32 mask, u32* sink, Clock* elapsed) {
    u32 all = 0, position = first;
    const Clock begin = now();
    for (int trip = 0; trip < trips; ++trip) {
        const uint4* mine = data + position + threadIdx.x;
        uint4 values[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) values[i] = load<in_l1>(mine + i * THREADS);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) all = folded(all, values[i]);
        position += stride;
        if (position >= footprint) position -= footprint;
    }
    tell(begin, elapsed);
    keep(all, mask, sink);
}

// Every block reads the same words: each multiprocessor's L1 holds a copy.
extern "C" __global__ void __launch_bounds__(THREADS)
    read_l1(const uint4* data, u32 footprint, int trips, u32 mask, u32* sink, Clock* elapsed) {
    walk<true>(data, footprint, 0, TILE, trips, mask, sink, elapsed);
}

// Every block reads different words, bypassing the L1. If several multiprocessors request one line
// at about the same time, one read of the L2 serves them all: `read_l2_shared` shows a higher rate.
extern "C" __global__ void __launch_bounds__(THREADS)
    read_l2(const uint4* data, u32 footprint, int trips, u32 mask, u32* sink, Clock* elapsed) {
    walk<false>(data + u64(blockIdx.x) * footprint, footprint, 0, TILE, trips, mask, sink, elapsed);
}

// Every block reads the whole footprint from a different start: all in the order of addresses, or,
// with a `hop`, each with a different stride, so that no two blocks advance together. A stride of
// a multiple of 6 plus 1 visits every tile if the number of tiles has only the factors 2 and 3.
template <bool in_l1>
__device__ __forceinline__ void walk_all(const uint4* data, u32 footprint, int trips, u32 hop,
                                         u32 mask, u32* sink, Clock* elapsed) {
    const u32 tiles = footprint / TILE;
    const u32 first = u32(u64(blockIdx.x) * tiles / gridDim.x);
    const u32 stride = (6 * hop * blockIdx.x + 1) % tiles;
    walk<in_l1>(data, footprint, first * TILE, stride * TILE, trips, mask, sink, elapsed);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    read_any(const uint4* data, u32 footprint, int trips, u32 hop, u32 mask, u32* sink,
             Clock* elapsed) {
    walk_all<true>(data, footprint, trips, hop, mask, sink, elapsed);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    read_l2_shared(const uint4* data, u32 footprint, int trips, u32 mask, u32* sink,
                   Clock* elapsed) {
    walk_all<false>(data, footprint, trips, 0, mask, sink, elapsed);
}
