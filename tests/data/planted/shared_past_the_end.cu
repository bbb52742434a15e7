// A tile with a halo in shared memory that has no place for the halo on the right.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256] --arg i32=256
__global__ void smooth(const float* a, float* b, int n) {
#ifdef FIXED
  __shared__ float s[66];
#else
  __shared__ float s[65];
#endif
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t + 1] = a[i];
  if (t == 0) s[0] = i ? a[i - 1] : 0;
  if (t == 63) {
    s[65] = i + 1 < n ? a[i + 1] : 0;  // BUG memcheck: out of bounds
  }
  __syncthreads();
  b[i] = s[t] + s[t + 1] +
         s[t + 2];  // BUG memcheck: out of bounds
}
