// The warps of a half of the block wait for each other at a barrier of their own, whose count is
// still that of the whole block.
//
// launch: --grid 2 --block 128 --arg in:f32[256] --arg out:f32[256]
// beyond compute-sanitizer: the kernel never ends
__global__ void halves(const float* a, float* b) {
  __shared__ float s[128];
  int t = threadIdx.x, half = t / 64;
  s[t] = a[blockIdx.x * blockDim.x + t];
#ifdef FIXED
  asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
#else
  asm volatile("bar.sync %0, 128;" ::"r"(1 + half) : "memory");  // BUG synccheck: divergent barrier; synccheck: barrier not reached
#endif
  b[blockIdx.x * blockDim.x + t] = s[half * 64 + 63 - t % 64];
}
