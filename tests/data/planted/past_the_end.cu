// A difference of neighbours whose guard forgets the right neighbour of the last element.
//
// launch: --grid 4 --block 256 --arg in:f32[1000] --arg out:f32[1000] --arg i32=1000
__global__ void difference(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  if (i < n) b[i] = i + 1 < n ? a[i + 1] - a[i] : 0;
#else
  if (i < n) b[i] = a[i + 1] - a[i];  // BUG memcheck: out of bounds
#endif
}
