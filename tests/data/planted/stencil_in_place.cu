// A stencil that overwrites the array which it reads: a neighbour may be the old value or the new
// one.
//
// launch: --grid 4 --block 64 --arg inout:f32[256] --arg out:f32[256] --arg i32=256
__global__ void smooth(float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float* to = a;
#ifdef FIXED
  to = b;
#else
  b[i] = 0;
#endif
  float left = i > 0 ? a[i - 1] : 0;  // BUG racecheck: WAR
  float right = i + 1 < n ? a[i + 1] : 0;  // BUG racecheck: WAR
  to[i] = 0.5f * (left + right);  // BUG racecheck: WAR
}
