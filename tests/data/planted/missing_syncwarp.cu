// A sum over one warp in shared memory without __syncwarp: since Volta, the threads of a warp need
// not run in step.
//
// launch: --grid 1 --block 32 --arg in:f32[32] --arg out:f32[1]
__global__ void sum(const float* a, float* total) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncwarp();
  for (int d = 16; d > 0; d /= 2) {
    if (t < d) {
      s[t] += s[t + d];  // BUG racecheck: RAW
    }
#ifdef FIXED
    __syncwarp();
#endif
  }
  if (t == 0) total[0] = s[0];
}
