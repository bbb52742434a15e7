// Read bandwidth of shared memory: 16 bytes per thread, without bank conflicts.

constexpr int UNROLL = 2;
constexpr int THREADS = 1024;
constexpr int WORDS = THREADS * UNROLL;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    read_shared(const uint4* data, u32 footprint, int trips, u32 mask, u32* sink, Clock* elapsed) {
    __shared__ uint4 tile[WORDS];
    for (int i = threadIdx.x; i < WORDS; i += THREADS) tile[i] = data[i];
    __syncthreads();
    u32 all = 0, position = threadIdx.x;
    const Clock begin = now();
    for (int trip = 0; trip < trips; ++trip) {
        uint4 values[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) values[i] = tile[position + i * THREADS];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) all = folded(all, values[i]);
        // The footprint is one tile. If the compiler knew, it would read the tile only once.
        position += WORDS;
        if (position >= footprint) position -= footprint;
    }
    tell(begin, elapsed);
    keep(all, mask, sink);
}
