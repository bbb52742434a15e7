// A __syncwarp that 17 threads reach, with a mask that names 16 of them, after the illegal_syncwarp
// sample of Compute Sanitizer.
//
// launch: --grid 1 --block 32 --arg in:f32[32] --arg out:f32[17]
__global__ void pairs(const float* a, float* b) {
  __shared__ float s[17];
  int t = threadIdx.x;
  if (t <= 16) {
    s[t] = a[t] + 1;
#ifdef FIXED
    __syncwarp(0x0001ffff);
#else
    __syncwarp(0x0000ffff);  // BUG synccheck: invalid mask
#endif
    b[t] = t < 16 ? s[15 - t] : s[16];
  }
}
