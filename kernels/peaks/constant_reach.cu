// Latency of constant memory by its reach: dependent loads of one word in each line of a footprint.

constexpr u32 WORDS = 16384;
constexpr u32 LINE_BYTES = 64;
__constant__ u32 zeros[WORDS];

// Each offset needs the word that was loaded before, which is 0. Line i is followed by line
// i + 37 modulo a power of two, a cycle through all lines.
extern "C" __global__ void chase_reach(const u32* zero, u32 footprint, int steps, Chased* result) {
    u32 offset = *zero;
    for (int round = 0; round < 2; ++round) {  // the first fills the caches
        const Clock begin = now();
#pragma unroll 4
        for (int step = 0; step < steps; ++step)
            offset = (offset + zeros[offset / 4] + 37 * LINE_BYTES) & (footprint - 1);
        result->end = offset;
        tell(begin, &result->elapsed);
    }
}
