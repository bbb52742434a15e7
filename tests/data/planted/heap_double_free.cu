// Two threads free the same allocation.
//
// launch: --grid 2 --block 64 --arg out:i32[128]
__global__ void shared_buffer(int* out) {
  __shared__ int* buffer;
  int t = threadIdx.x;
  if (t == 0) buffer = (int*)malloc(64 * sizeof(int));
  __syncthreads();
  if (buffer) buffer[t] = t * t;
  __syncthreads();
  out[blockIdx.x * blockDim.x + t] = buffer ? buffer[63 - t] : -1;
  __syncthreads();
#ifdef FIXED
  if (t == 0) free(buffer);
#else
  if (t % 32 == 0) free(buffer);  // BUG memcheck: double free
#endif
}
