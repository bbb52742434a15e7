// The first warp adds up the parts of a block's sum and leaves the sum in the place of one of them.
// Its lanes have read all parts before, since their values went through the shuffles; but behind the
// shuffles the other lanes need not see the sum.
//
// launch: --grid 2 --block 128 --arg in:f32[256] --arg out:f32[256]
__global__ void share(const float* a, float* b) {
  __shared__ float s[4];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float x = a[i];
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
  if (t % 32 == 0) s[t / 32] = x;
  __syncthreads();
  if (t < 32) {
    float sum = s[t % 4];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    if (t == 0) s[3] = sum;  // BUG racecheck: WAR
#ifndef FIXED
    b[i] = a[i] / s[3];  // BUG racecheck: WAR
#endif
  }
  __syncthreads();
#ifdef FIXED
  b[i] = a[i] / s[3];
#else
  if (t >= 32) b[i] = a[i] / s[3];
#endif
}
