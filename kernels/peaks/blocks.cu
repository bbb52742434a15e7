// The start and the end of blocks.

extern "C" __global__ void nothing() {}

struct Stamp {
    u64 multiprocessor, begin, end;
};

// Every block notes its multiprocessor and its first clock, and works for some clocks. Its last clock
// follows: a block that stored it at its end might have to wait for that.
extern "C" __global__ void stamps(Stamp* out, u32 clocks) {
    u64 begin, end;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    if (threadIdx.x == 0) out[blockIdx.x] = {multiprocessor(), begin, begin + clocks};
    do {
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
    } while (end - begin < clocks);
}

// Every warp of a block notes its first clock.
extern "C" __global__ void warp_starts(u64* out) {
    u64 begin;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    if (threadIdx.x % 32 == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = begin;
}
