// A prefix sum that a block keeps in global memory and reads through the read-only cache, which
// need not see what the block has written.
//
// launch: --grid 1 --block 64 --arg inout:f32[64]
// beyond compute-sanitizer: racecheck follows shared memory only
__global__ void scan(float* a) {
  int t = threadIdx.x;
  for (int d = 1; d < 64; d *= 2) {
#ifdef FIXED
    float left = t >= d ? a[t - d] : 0;
#else
    float left = t >= d ? __ldg(a + t - d) : 0;  // BUG racecheck: stale read
#endif
    __syncthreads();
    a[t] += left;  // BUG racecheck: stale read
    __syncthreads();
  }
}
