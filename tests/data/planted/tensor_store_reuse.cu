// A box that a tensor copy stores, and that threads fill again before the copy has read it.
//
// launch: --grid 2 --block 64 --arg in:f32[512] --arg 'tensormap=out:f32[32,32]:box[8,32]'
#include <cuda.h>

__global__ void doubled(const float* a, const __grid_constant__ CUtensorMap b) {
  __shared__ __align__(128) float s[256];
  unsigned from = (unsigned)__cvta_generic_to_shared(s);
  int t = threadIdx.x;
  for (int row = 8 * blockIdx.x; row < 32; row += 8 * gridDim.x) {
    for (int i = t; i < 256; i += 64) s[i] = 2 * a[(256 * blockIdx.x + i) % 512];  // BUG racecheck: WAR
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) {
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&b), "r"(0), "r"(row), "r"(from) : "memory");  // BUG racecheck: WAR
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifdef FIXED
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    }
    __syncthreads();
  }
}
