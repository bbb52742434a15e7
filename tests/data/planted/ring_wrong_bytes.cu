// A ring of buffers that one thread fills by bulk copies and the others read. Its barriers expect 16
// bytes more than a copy brings: the readers wait forever, and so does the thread that copies, for
// them. The bytes are the cause.
//
// launch: --grid 2 --block 160 --arg in:f32[4096] --arg out:f32[4096] --arg 8
// beyond compute-sanitizer: the kernel never ends
#include <cuda/ptx>
namespace ptx = cuda::ptx;

constexpr int STAGES = 2, ITEMS = 256;
#ifdef FIXED
constexpr int BYTES = 4 * ITEMS;
#else
constexpr int BYTES = 4 * ITEMS + 16;
#endif

__global__ void doubled(const float* a, float* b, int tiles) {
  __shared__ __align__(128) float s[STAGES][ITEMS];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  int t = threadIdx.x, first = blockIdx.x * tiles * ITEMS;
  if (t == 0) {
    for (int i = 0; i < STAGES; ++i) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], 4);
    }
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  for (int tile = 0; tile < tiles; ++tile) {
    int stage = tile % STAGES, round = tile / STAGES, at = first + tile * ITEMS;
    if (t == 128) {
      if (round > 0)
        while (!ptx::mbarrier_try_wait_parity(&empty[stage], (round - 1) & 1)) {}
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[stage], BYTES);
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s[stage], a + at, 4 * ITEMS, &full[stage]);
    } else if (t < 128) {
      while (!ptx::mbarrier_try_wait_parity(&full[stage], round & 1)) {}  // BUG synccheck: endless wait
      for (int i = t; i < ITEMS; i += 128) b[at + i] = 2 * s[stage][i];
      __syncwarp();
      if (t % 32 == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &empty[stage]);
    }
  }
}
