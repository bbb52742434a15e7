// Copies and barriers that do not wait, as people write them.
#include <cuda_pipeline.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
extern "C" __global__ void pipeline_primitives(const float4* x, float4* out, int tiles) {
  __shared__ float4 stage[2][64];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&stage[0][t], &x[blockIdx.x * tiles * 64 + t], 16);
  __pipeline_commit();
  for (int k = 0; k < tiles; ++k) {
    if (k + 1 < tiles) __pipeline_memcpy_async(&stage[(k + 1) & 1][t], &x[(blockIdx.x * tiles + k + 1) * 64 + t], 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float4 v = stage[k & 1][63 - t];
    out[(blockIdx.x * tiles + k) * 64 + t] = make_float4(v.w, v.z, v.y, v.x);
    __syncthreads();
  }
}
extern "C" __global__ void cuda_pipeline(const int* x, int* out, int tiles) {
  __shared__ int stage[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cooperative_groups::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  for (int fetch = 0, k = 0; k < tiles; ++k) {
    for (; fetch < tiles && fetch < k + 2; ++fetch) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, stage[fetch & 1], x + fetch * 128, sizeof(int) * 128, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    out[k * 128 + threadIdx.x] = stage[k & 1][127 - threadIdx.x];
    pipe.consumer_release();
  }
}
extern "C" __global__ void cuda_barrier(const float* x, float* out, int rounds) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ barrier b; __shared__ float s[128];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  float v = x[blockIdx.x * 128 + threadIdx.x];
  for (int k = 0; k < rounds; ++k) {
    s[threadIdx.x] = v;
    auto token = b.arrive();
    float own = v * 0.5f;
    b.wait(cuda::std::move(token));
    v = own + 0.5f * s[(threadIdx.x + 1) % 128];
    b.arrive_and_wait();
  }
  out[blockIdx.x * 128 + threadIdx.x] = v;
}
extern "C" __global__ void named_barriers(const float* x, float* out, int tiles) {
  __shared__ float stage[2][32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // warp 0 produces, warp 1 consumes; barriers 1, 2: full; 3, 4: empty
  if (warp == 0) {
    for (int k = 0; k < tiles; ++k) {
      int b = k & 1;
      if (k >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + b) : "memory");
      stage[b][lane] = x[k * 32 + lane] * 2;
      __threadfence_block();
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + b) : "memory");
    }
  } else {
    for (int k = 0; k < tiles; ++k) {
      int b = k & 1;
      asm volatile("bar.sync %0, 64;" ::"r"(1 + b) : "memory");
      out[k * 32 + lane] = stage[b][31 - lane];
      if (k + 2 < tiles) asm volatile("bar.arrive %0, 64;" ::"r"(3 + b) : "memory");
    }
  }
}
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void mbarrier_asm(const int* x, int* out) {
  __shared__ unsigned long long bar; __shared__ int s[64];
  unsigned p = (unsigned)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(p), "r"(64) : "memory");
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x];
  unsigned long long token;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(p) : "memory");
  unsigned done = 0;
  while (!done) asm volatile("{ .reg .pred q; mbarrier.test_wait.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q; }" : "=r"(done) : "r"(p), "l"(token) : "memory");
  out[threadIdx.x] = s[63 - threadIdx.x];
}
#endif
