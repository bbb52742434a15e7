// A tensor copy to shared memory that is read behind a barrier of the block, but without waiting for
// the phase of the mbarrier at which the copy arrives.
//
// launch: --grid 2 --block 64 --arg 'tensormap=f32[16,32]:box[8,32]' --arg out:f32[512]
#include <cuda.h>

__device__ bool is_over(unsigned barrier, unsigned parity) {
  unsigned over;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
               " selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
  return over;
}

__global__ void reversed(const __grid_constant__ CUtensorMap a, float* b) {
  __shared__ __align__(128) float s[256];
  __shared__ unsigned long long word;
  unsigned to = (unsigned)__cvta_generic_to_shared(s);
  unsigned barrier = (unsigned)__cvta_generic_to_shared(&word);
  int t = threadIdx.x;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(barrier) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&a), "r"(0), "r"((int)(8 * blockIdx.x)), "r"(barrier) : "memory");  // BUG racecheck: RAW
  }
  __syncthreads();
#ifdef FIXED
  while (!is_over(barrier, 0)) {
  }
#endif
  for (int i = t; i < 256; i += 64) b[256 * blockIdx.x + i] = s[255 - i];  // BUG racecheck: RAW
}
