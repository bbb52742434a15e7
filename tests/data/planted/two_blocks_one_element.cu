// Every block stores its own values to the same elements: the block's offset is forgotten.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
// unplaced: initcheck: never written
__global__ void scale(const float* a, float* b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  b[i] = 2 * a[i];
#else
  b[threadIdx.x] = 2 * a[i];  // BUG racecheck: WAW
#endif
}
