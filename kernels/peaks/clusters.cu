// Which multiprocessors share a cluster.

// A block notes its multiprocessor, and stays until all of its cluster have been there for a while:
// no other block of the cluster can come to the same multiprocessor meanwhile.
extern "C" __global__ void places(u32* out, u32 clocks) {
    if (threadIdx.x == 0) out[blockIdx.x] = multiprocessor();
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    const u32 begin = cycles_now();
    while (cycles_now() - begin < clocks) {
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
