// Sums over each warp, then over the block, with the guard of the tail around the shuffles: threads
// behind the end do not take part, though the mask names them and they wait at the barrier behind.
//
// launch: --grid 2 --block 64 --arg in:f32[100] --arg out:f32[2] --arg i32=100
__global__ void sums(const float* a, float* b, int n) {
  __shared__ float s[2];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 0;
#ifdef FIXED
  if (i < n) x = a[i];
  for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(0xffffffff, x, d);
#else
  if (i < n) {
    x = a[i];
    for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(0xffffffff, x, d);  // BUG synccheck: invalid mask
  }
#endif
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0) b[blockIdx.x] = s[0] + s[1];
}
