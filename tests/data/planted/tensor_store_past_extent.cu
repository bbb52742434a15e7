// A tensor of 11 columns in rows of 16: the copy that stores it writes column 11 too, since it
// moves pieces of 16 bytes as a whole.
//
// launch: --grid 1 --block 32 --arg 'inout:f32[8,16]=zeros' --arg 'tensormap=@b[8,11]:strides[64]:box[8,16]'
#include <cuda.h>

__global__ void filled(float* b, const __grid_constant__ CUtensorMap columns) {
  __shared__ __align__(128) float s[128];
  unsigned from = (unsigned)__cvta_generic_to_shared(s);
  int t = threadIdx.x;
  for (int i = t; i < 128; i += 32) s[i] = i;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&columns), "r"(0), "r"(0), "r"(from) : "memory");  // BUG racecheck: WAW
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
#ifdef FIXED
  __syncthreads();
#endif
  if (t < 8) b[16 * t + 11] = -1;  // BUG racecheck: WAW
}
