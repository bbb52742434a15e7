// How long a store takes until it is complete.

// One warp stores to a random line, each lane a word, or stores nothing, and waits at a fence until
// all of its stores are complete. The clocks are those of the store and of the fence.
extern "C" __global__ void __launch_bounds__(32)
    completions(u32* data, u32 line_mask, u32 stores, u32 seed, u32 samples, u32* cycles) {
    for (u32 sample = 0; sample < samples; ++sample) {
        u32* const place = data + u64(hashed(seed, sample) & line_mask) * 32 + threadIdx.x;
        __syncwarp();
        const u32 begin = cycles_now();
        if (stores) asm volatile("st.global.u32 [%0], %1;" ::"l"(place), "r"(sample) : "memory");
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        const u32 end = cycles_now();
        if (threadIdx.x == 0) cycles[sample] = end - begin;
        asm volatile("fence.acq_rel.gpu;" ::: "memory");  // the next sample waits for its own store
    }
}
