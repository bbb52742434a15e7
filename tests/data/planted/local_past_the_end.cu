// A thread's own array is written one element past its end: the ring of the last values has four
// places, and the place is taken from the count of five.
//
// launch: --grid 1 --block 32 --arg in:f32[256] --arg out:f32[32]
__global__ void ring(const float* a, float* b) {
  float kept[4] = {0, 0, 0, 0};
  int t = threadIdx.x;
#ifdef FIXED
  int places = 4;
#else
  int places = 5;
#endif
#pragma unroll 1
  for (int k = 0; k < 8; ++k) {
    kept[(k + t) % places] = a[8 * t + k];  // BUG memcheck: out of bounds
  }
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 4; ++k) sum += kept[(k + t) % 4];
  b[t] = sum;
}
