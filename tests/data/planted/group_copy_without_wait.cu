// A block copies its tile to shared memory by cooperative_groups::memcpy_async. A barrier alone does
// not wait for the copy.
//
// launch: --grid 2 --block 64 --arg in:f32[128] --arg out:f32[128]
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void reverse(const float* a, float* b) {
  __shared__ float s[64];
  cg::thread_block block = cg::this_thread_block();
  int t = threadIdx.x, first = blockIdx.x * blockDim.x;
  cg::memcpy_async(block, s, a + first, sizeof(s));  // BUG racecheck: RAW
#ifdef FIXED
  cg::wait(block);
#else
  block.sync();
#endif
  b[first + t] = s[63 - t];  // BUG racecheck: RAW
}
