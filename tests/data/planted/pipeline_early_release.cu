// One warp copies batches to shared memory, the other one consumes them, both by a cuda::pipeline of
// the block. The consumers give a stage back before they have read it.
//
// launch: --grid 2 --block 64 --arg in:f32[320] --arg out:f32[320] --arg i32=5
#include <cooperative_groups.h>
#include <cuda/pipeline>
constexpr int STAGES = 2;
__global__ void reverse(const float* a, float* b, int batches) {
  __shared__ float s[STAGES][32];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
  bool produces = threadIdx.x < 32;
  int t = threadIdx.x % 32, first = blockIdx.x * batches * 32;
  auto role = produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state, role);
  for (int batch = 0; batch < batches; ++batch) {
    float* stage = s[batch % STAGES];
    if (produces) {
      pipe.producer_acquire();
      cuda::memcpy_async(stage + t, a + first + batch * 32 + t, sizeof(float), pipe);  // BUG racecheck: WAR
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
#ifndef FIXED
      pipe.consumer_release();
#endif
      b[first + batch * 32 + t] = stage[31 - t];  // BUG racecheck: WAR
#ifdef FIXED
      pipe.consumer_release();
#endif
    }
  }
}
