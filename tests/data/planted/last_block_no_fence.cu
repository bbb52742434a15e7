// The last block to finish adds up what the others wrote, after the threadFenceReduction sample of
// the CUDA toolkit, without the __threadfence between a block's sum and its sign of being done:
// the sum may arrive after the sign.
//
// launch: --grid 8 --block 64 --arg in:f32[512] --arg out:f32[8] --arg inout:u32[1]=zeros --arg out:f32[1]
__global__ void sum(const float* a, volatile float* sums, unsigned* done, float* total) {
  __shared__ float s[64];
  __shared__ bool last;
  int t = threadIdx.x;
  s[t] = a[blockIdx.x * blockDim.x + t];
  for (int d = 32; d > 0; d /= 2) {
    __syncthreads();
    if (t < d) s[t] += s[t + d];
  }
  if (t == 0) {
    sums[blockIdx.x] = s[0];  // BUG racecheck: RAW
#ifdef FIXED
    __threadfence();
#endif
    last = atomicInc(done, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    float all = 0;
    for (int b = 0; b < gridDim.x; ++b) {
      all += sums[b];  // BUG racecheck: RAW
    }
    total[0] = all;
  }
}
