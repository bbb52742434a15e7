// An asynchronous copy to shared memory that is read behind a barrier, but without waiting for the
// copy to arrive.
//
// launch: --grid 2 --block 64 --arg in:f32[128] --arg out:f32[128]
__global__ void reversed(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x, first = blockIdx.x * blockDim.x;
  unsigned to = (unsigned)__cvta_generic_to_shared(&s[t]);
  const float* from = a + first + t;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from));  // BUG racecheck: RAW
#ifdef FIXED
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncthreads();
  b[first + t] = s[63 - t];  // BUG racecheck: RAW
}
