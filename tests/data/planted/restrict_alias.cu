// Each block doubles its part of an array, then adds neighbours. The launch passes one array for both
// parameters, so the promise of __restrict__ is broken: the compiler reads through the read-only
// cache.
//
// launch: --grid 2 --block 64 --arg inout:f32[128] --arg @b --arg out:f32[128]
// beyond compute-sanitizer: racecheck follows shared memory only
#ifdef FIXED
#define RESTRICT
#else
#define RESTRICT __restrict__
#endif
__global__ void blur(float* RESTRICT b, const float* RESTRICT a, float* c) {
  int t = threadIdx.x, first = blockIdx.x * blockDim.x;
  b[first + t] *= 2;  // BUG racecheck: stale read
  __syncthreads();
  c[first + t] =
      a[first + (t + 63) % 64] +  // BUG racecheck: stale read
      a[first + (t + 1) % 64];  // BUG racecheck: stale read
}
