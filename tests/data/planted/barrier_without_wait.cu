// Copies each batch to shared memory by cuda::memcpy_async and a cuda::barrier: the threads arrive,
// and read without waiting for the others.
//
// launch: --grid 2 --block 64 --arg in:f32[256] --arg out:f32[256] --arg i32=2
#include <cuda/barrier>
#include <cuda/std/utility>
using Barrier = cuda::barrier<cuda::thread_scope_block>;
__global__ void reverse(const float* a, float* b, int batches) {
  __shared__ float s[64];
  __shared__ Barrier copied;
  int t = threadIdx.x, first = blockIdx.x * batches * 64;
  if (t == 0) init(&copied, blockDim.x);
  __syncthreads();
  for (int batch = 0; batch < batches; ++batch) {
    int i = first + batch * 64 + t;
    cuda::memcpy_async(s + t, a + i, sizeof(float), copied);  // BUG racecheck: RAW
    Barrier::arrival_token token = copied.arrive();
#ifdef FIXED
    copied.wait(cuda::std::move(token));
#endif
    b[i] = s[63 - t];  // BUG racecheck: RAW
    __syncthreads();
  }
}
