// Each block adds its sum to a total, by an atomic of libcu++ whose scope was taken over from the
// counter in shared memory.
//
// launch: --grid 4 --block 64 --arg in:i32[256]=randint:0:9 --arg inout:i32[1]=zeros
// beyond compute-sanitizer: racecheck follows shared memory only
#include <cuda/atomic>
#ifdef FIXED
constexpr cuda::thread_scope SCOPE = cuda::thread_scope_device;
#else
constexpr cuda::thread_scope SCOPE = cuda::thread_scope_block;
#endif
__global__ void sum(const int* a, int* total) {
  __shared__ int mine;
  if (threadIdx.x == 0) mine = 0;
  __syncthreads();
  cuda::atomic_ref<int, cuda::thread_scope_block> own(mine);
  own.fetch_add(a[blockIdx.x * blockDim.x + threadIdx.x], cuda::memory_order_relaxed);
  __syncthreads();
  cuda::atomic_ref<int, SCOPE> all(*total);
  if (threadIdx.x == 0) all.fetch_add(mine, cuda::memory_order_relaxed);  // BUG racecheck: WAW
}
