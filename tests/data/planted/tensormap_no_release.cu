// A thread gives a tensor map in global memory another tensor, and then copies by it and acquires it,
// but has not released what it wrote: the copy may still read the map that was there before.
//
// launch: --grid 2 --block 32 --arg 'tensormap[2]=f32[8,32]:box[8,32],f32[8,32]:box[8,32]' --arg f32[512] --arg out:f32[512]
// beyond compute-sanitizer: racecheck knows no proxies
#include <cuda.h>

__global__ void moved(CUtensorMap* maps, const float* a, float* b) {
  __shared__ __align__(128) float s[256];
  __shared__ unsigned long long word;
  unsigned to = (unsigned)__cvta_generic_to_shared(s);
  unsigned barrier = (unsigned)__cvta_generic_to_shared(&word);
  CUtensorMap* map = maps + blockIdx.x;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(a + 256 * blockIdx.x) : "memory");  // BUG racecheck: missing map fence
#ifdef FIXED
    asm volatile("fence.proxy.tensormap::generic.release.cta;" ::: "memory");
#endif
    asm volatile("fence.proxy.tensormap::generic.acquire.cta [%0], 128;" ::"l"(map) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(barrier) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];" ::"r"(to), "l"(map), "r"(0), "r"(barrier) : "memory");  // BUG racecheck: missing map fence
  }
  __syncthreads();
  unsigned over = 0;
  while (!over)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(barrier) : "memory");
  for (int i = threadIdx.x; i < 256; i += 32) b[256 * blockIdx.x + i] = s[i];
}
