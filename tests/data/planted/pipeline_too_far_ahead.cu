// Copies batches through three stages of shared memory by cuda::pipeline. With as many copies ahead
// as there are stages, a copy overwrites the stage that other threads may still be reading.
//
// launch: --grid 2 --block 64 --arg in:f32[640] --arg out:f32[640] --arg i32=5
#include <cuda/pipeline>
constexpr int STAGES = 3;
#ifdef FIXED
constexpr int AHEAD = STAGES - 1;
#else
constexpr int AHEAD = STAGES;
#endif
__global__ void reverse(const float* a, float* b, int batches) {
  __shared__ float s[STAGES][64];
  int t = threadIdx.x, first = blockIdx.x * batches * 64;
  auto pipe = cuda::make_pipeline();
  for (int batch = 0, next = 0; batch < batches; ++batch) {
    for (; next < batch + AHEAD; ++next) {
      pipe.producer_acquire();
      if (next < batches) {
        const float* from = a + first + next * 64 + t;
        cuda::memcpy_async(&s[next % STAGES][t], from, sizeof(float), pipe);  // BUG racecheck: WAR
      }
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    __syncthreads();
    b[first + batch * 64 + t] = s[batch % STAGES][63 - t];  // BUG racecheck: WAR
    pipe.consumer_release();
  }
}
