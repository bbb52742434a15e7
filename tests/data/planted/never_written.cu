// A copy whose guard leaves out the last element.
//
// launch: --grid 4 --block 256 --arg in:f32[1000] --arg out:f32[1000] --arg i32=1000
// unplaced: initcheck: never written
__global__ void copy(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  if (i < n) b[i] = a[i];
#else
  if (i < n - 1) b[i] = a[i];
#endif
}
