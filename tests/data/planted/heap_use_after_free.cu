// What a thread has allocated is freed before another thread of its block reads it.
//
// launch: --grid 2 --block 64 --arg out:i32[128]
__global__ void exchange(int* out) {
  __shared__ int* all[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  int* own = (int*)malloc(16 + t % 3 * 8);
  all[t] = own;
  if (own) own[1] = i;
  __syncthreads();
#ifdef FIXED
  out[i] = all[63 - t] ? all[63 - t][1] : -1;
  __syncthreads();
  free(own);
#else
  free(own);
  __syncthreads();
  out[i] = all[63 - t] ? all[63 - t][1] : -1;  // BUG memcheck: use after free
#endif
}
