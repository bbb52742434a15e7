// A product of a warpgroup whose sums threads store before its group is complete: wgmma runs on its own, and
// writes its registers until wgmma.wait_group.
//
// launch: --grid 2 --block 128 --arg in:f16[1024] --arg in:f16[128] --arg out:f32[1024]
// reference: warpgroup_product
// verification: passed
// beyond compute-sanitizer: synccheck knows no products of warpgroups
#include <cuda_fp16.h>
__global__ void product(const __half* a, const __half* b, float* d) {
  __shared__ __align__(128) __half s[1024], r[128];  // rows of 8 elements, 8 rows to 128 bytes
  int t = threadIdx.x;
  for (int i = t; i < 1024; i += 128) s[i] = a[i];
  r[t] = b[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  unsigned long long strides = 8ull << 16 | 16ull << 32;  // 128 and 256 bytes, in units of 16
  unsigned long long left = strides | (unsigned)__cvta_generic_to_shared(s) >> 4;
  unsigned long long right = strides | (unsigned)__cvta_generic_to_shared(r) >> 4;
  float x[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]) : "l"(left), "l"(right) : "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifdef FIXED
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])::"memory");
#endif
  for (int i = 0; i < 4; ++i) d[4 * t + i + 512 * blockIdx.x] = x[i];  // BUG synccheck: missing wait
}
