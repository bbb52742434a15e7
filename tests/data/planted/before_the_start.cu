// A stencil whose first thread reads the element before the first one.
//
// launch: --grid 4 --block 256 --arg in:f32[1024] --arg out:f32[1024] --arg i32=1024
__global__ void smooth(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#ifdef FIXED
  float left = a[max(i - 1, 0)];
#else
  float left = a[i - 1];  // BUG memcheck: out of bounds
#endif
  b[i] = 0.5f * (left + a[i]);
}
