// One warp produces and only arrives at a barrier, another one consumes and waits there for one warp
// more than there is.
//
// launch: --grid 2 --block 64 --arg in:f32[64] --arg out:f32[64]
// beyond compute-sanitizer: the kernel never ends
__global__ void pass(const float* a, float* b) {
  __shared__ float s[32];
  int t = threadIdx.x, first = 32 * blockIdx.x;
  if (t < 32) {
    s[t] = a[first + t];
    asm volatile("bar.arrive 1, 64;" ::: "memory");
  } else {
#ifdef FIXED
    asm volatile("bar.sync 1, 64;" ::: "memory");
#else
    asm volatile("bar.sync 1, 96;" ::: "memory");  // BUG synccheck: barrier not reached
#endif
    b[first + t - 32] = s[63 - t];
  }
}
