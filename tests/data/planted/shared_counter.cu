// A counter in shared memory that nobody sets to zero before it counts.
//
// launch: --grid 2 --block 64 --arg in:f32[128] --arg out:i32[2]
__global__ void count(const float* a, int* counts) {
  __shared__ int above;
#ifdef FIXED
  if (threadIdx.x == 0) above = 0;
  __syncthreads();
#endif
  if (a[blockIdx.x * blockDim.x + threadIdx.x] > 0.5f) {
    atomicAdd(&above, 1);  // BUG initcheck: uninitialized read
  }
  __syncthreads();
  if (threadIdx.x == 0) counts[blockIdx.x] = above;
}
