// Whole algorithms.
extern "C" __global__ void bitonic(float* x) {
  extern __shared__ float s[]; int t = threadIdx.x; s[t] = x[blockIdx.x * blockDim.x + t]; __syncthreads();
  for (int k = 2; k <= blockDim.x; k <<= 1)
    for (int j = k >> 1; j; j >>= 1) {
      int o = t ^ j;
      bool up = !(t & k);
      if (o > t && (s[t] > s[o]) == up) { float v = s[t]; s[t] = s[o]; s[o] = v; }
      __syncthreads();
    }
  x[blockIdx.x * blockDim.x + t] = s[t];
}
// single-pass scan: each block waits for the one before it
extern "C" __global__ void lookback(const int* x, int* out, volatile int* state, int* ticket, int n) {
  __shared__ int s[256]; __shared__ int block, before;
  if (threadIdx.x == 0) block = atomicAdd(ticket, 1);
  __syncthreads();
  int t = threadIdx.x, i = block * 256 + t; s[t] = i < n ? x[i] : 0; __syncthreads();
  for (int d = 1; d < 256; d <<= 1) { int v = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += v; __syncthreads(); }
  if (t == 0) {
    int b = 0;
    if (block) { while (state[2 * (block - 1)] == 0) ; __threadfence(); b = state[2 * (block - 1) + 1]; }
    before = b; state[2 * block + 1] = b + s[255]; __threadfence(); state[2 * block] = 1;
  }
  __syncthreads();
  if (i < n) out[i] = s[t] + before;
}
