// Atomics: latency, contention for one address, and rate at many addresses.

// One thread adds; the address of each addition needs the value that the previous one returned.
extern "C" __global__ void chain_global(u32* counter, int steps, Chased* result) {
    u32 value = 0;
    for (int round = 0; round < 2; ++round) {
        const Clock begin = now();
#pragma unroll 1
        for (int step = 0; step < steps; ++step) value = atomicAdd(counter + (value >> 31), 1u);
        result->end = value;
        tell(begin, &result->elapsed);
    }
}

extern "C" __global__ void chain_shared(u32* counter, int steps, Chased* result) {
    __shared__ u32 word[2];
    *word = 0;
    u32 value = 0;
    for (int round = 0; round < 2; ++round) {
        const Clock begin = now();
#pragma unroll 1
        for (int step = 0; step < steps; ++step) value = atomicAdd(word + (value >> 31), 1u);
        result->end = value;
        tell(begin, &result->elapsed);
    }
    *counter = *word;
}

// Every warp adds 1 again and again, with its first `lanes` lanes. Lane i adds to the word
// (warp * warp_stride + i * lane_stride) & word_mask. With strides of 0 all add to one word; the
// compiler cannot know it, and so does not add up the lanes first.
extern "C" __global__ void __launch_bounds__(1024)
    add(u32* words, u32 word_mask, u32 lanes, u32 warp_stride, u32 lane_stride, int trips) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 32 >= lanes) return;
    u32 word = thread / 32 * warp_stride + threadIdx.x % 32 * lane_stride;
    for (int trip = 0; trip < trips; ++trip) {
        atomicAdd(words + (word & word_mask), 1u);
        word += gridDim.x * blockDim.x / 32 * warp_stride;
    }
}

// The same with floats, whose addition the L2 does in another unit.
extern "C" __global__ void __launch_bounds__(1024)
    add_floats(float* words, u32 word_mask, u32 lanes, u32 warp_stride, u32 lane_stride, int trips) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 32 >= lanes) return;
    const u32 word = thread / 32 * warp_stride + threadIdx.x % 32 * lane_stride;
    for (int trip = 0; trip < trips; ++trip) atomicAdd(words + (word & word_mask), 1.0f);
}

// The same in the shared memory of one multiprocessor. An amount of 1 that the compiler knew would
// make another instruction, which counts lanes.
extern "C" __global__ void __launch_bounds__(1024)
    add_shared(u32* total, u32 amount, u32 lane_stride, int trips, Clock* elapsed) {
    __shared__ u32 words[1024];
    words[threadIdx.x] = 0;
    __syncthreads();
    u32* word = words + threadIdx.x % 32 * lane_stride;
    const Clock begin = now();
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int i = 0; i < 8; ++i) atomicAdd(word, amount);
    }
    __syncthreads();
    tell(begin, elapsed);
    atomicAdd(total, words[threadIdx.x]);
}
