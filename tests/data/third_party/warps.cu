// Threads that return early, and blocks that wait for a flag.
extern "C" __global__ void early_return(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned m = __activemask();
  int v = x[i];
  for (int d = 16; d; d >>= 1) { int o = __shfl_down_sync(m, v, d); if ((threadIdx.x & 31) + d < __popc(m)) v += o; }
  if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}
extern "C" __global__ void spin_flag(volatile int* flag, const int* x, int* out) {
  // block 0 produces, later blocks wait for it
  if (blockIdx.x == 0) { out[threadIdx.x] = x[threadIdx.x] * 2; __threadfence(); __syncthreads(); if (threadIdx.x == 0) *flag = 1; }
  else { if (threadIdx.x == 0) while (*flag == 0) ; __syncthreads(); __threadfence(); out[blockIdx.x * blockDim.x + threadIdx.x] = ((volatile int*)out)[threadIdx.x] + blockIdx.x; }
}
