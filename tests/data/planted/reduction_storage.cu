// Two sums over the block in a row, by shuffles and one shared array: after the first sum a warp may
// write its part of the second one while another warp still reads the parts of the first.
//
// launch: --grid 2 --block 128 --arg in:f32[256] --arg out:f32[256]
__device__ float warp_sum(float x) {
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
  return x;
}
__device__ float block_sum(float x, float* s) {
  x = warp_sum(x);
#ifdef FIXED
  __syncthreads();
#endif
  if (threadIdx.x % 32 == 0)
    s[threadIdx.x / 32] = x;  // BUG racecheck: WAR
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < 4 ?
                      s[threadIdx.x % 32] : 0);  // BUG racecheck: WAR
}
__global__ void normalize(const float* a, float* b) {
  __shared__ float s[4];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = a[i] - block_sum(a[i], s) / 128;
  b[i] = x * rsqrtf(block_sum(x * x, s) / 128);
}
