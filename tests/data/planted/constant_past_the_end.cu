// A filter whose loop takes one coefficient too many: it reads the first of the next table.
//
// launch: --grid 1 --block 64 --arg in:f32[72] --arg out:f32[64] --arg i32=8
__constant__ float low[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__constant__ float high[8] = {1, -1, 1, -1, 1, -1, 1, -1};
__global__ void bands(const float* a, float* b, int taps) {
  int t = threadIdx.x;
  float sum = 0;
#ifdef FIXED
  for (int k = 0; k < taps; ++k) sum += low[k] * a[t + k];
#else
  for (int k = 0; k <= taps; ++k) sum += low[k] * a[t + k];  // BUG memcheck: out of bounds
#endif
  for (int k = 0; k < taps; ++k) sum -= high[k] * a[t + k];
  b[t] = sum;
}
