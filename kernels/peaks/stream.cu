// DRAM bandwidth: arrays much larger than the L2, one access per element, 16 bytes per thread.
//
// The grid has many short blocks: blocks start in the order of their addresses, so that the whole
// GPU works on one small window that moves, which keeps DRAM pages open. Reads need many loads in
// flight; writes need the stores of a block close together in time.

constexpr int READ_UNROLL = 8;

extern "C" __global__ void __launch_bounds__(256) fill(uint4* out, u64 words) {
    const u64 index = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= words) return;
    // splitmix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014)
    u64 low = (index + 1) * 0x9E3779B97F4A7C15ull;
    low = (low ^ (low >> 30)) * 0xBF58476D1CE4E5B9ull;
    u64 high = (low ^ (low >> 27)) * 0x94D049BB133111EBull;
    high ^= high >> 31;
    const u32 finite = 0xBFFFFFFFu;  // as float32: no infinity, no NaN
    out[index] = make_uint4(u32(low) & finite, u32(low >> 32) & finite, u32(high) & finite,
                            u32(high >> 32) & finite);
}

// With six blocks per multiprocessor a thread has enough registers for all its loads in flight.
extern "C" __global__ void __launch_bounds__(256, 6)
    read(uint4*, const uint4* in, const uint4*, u32 mask, u32* sink) {
    const uint4* mine = in + u64(blockIdx.x) * (256 * READ_UNROLL) + threadIdx.x;
    uint4 values[READ_UNROLL];
#pragma unroll
    for (int i = 0; i < READ_UNROLL; ++i) values[i] = mine[i * 256];
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < READ_UNROLL; ++i) all = folded(all, values[i]);
    keep(all, mask, sink);
}

extern "C" __global__ void __launch_bounds__(256)
    write(uint4* out, const uint4*, const uint4*, u32, u32*) {
    const u64 index = u64(blockIdx.x) * 256 + threadIdx.x;
    const u32 value = u32(index) * 2654435761u;  // Knuth's multiplicative hash
    __stcs(out + index, make_uint4(value, ~value, value ^ 0x5A5A5A5Au, value + 0x9E3779B9u));
}

extern "C" __global__ void __launch_bounds__(128)
    copy(uint4* out, const uint4* in, const uint4*, u32, u32*) {
    const u64 index = u64(blockIdx.x) * 128 + threadIdx.x;
    out[index] = in[index];
}

__device__ __forceinline__ u32 multiply_add(u32 b, u32 c) {
    return __float_as_uint(fmaf(3.0f, __uint_as_float(c), __uint_as_float(b)));
}

extern "C" __global__ void __launch_bounds__(1024)
    triad(uint4* out, const uint4* in, const uint4* other, u32, u32*) {
    const u64 index = u64(blockIdx.x) * 1024 + threadIdx.x;
    const uint4 b = __ldcs(in + index);
    const uint4 c = __ldcs(other + index);
    __stcs(out + index, make_uint4(multiply_add(b.x, c.x), multiply_add(b.y, c.y),
                                   multiply_add(b.z, c.z), multiply_add(b.w, c.w)));
}
