// A descriptor of wgmma made of a whole shared-memory address: in a cluster, the bits of the address
// that name the block reach the distance between the units of a row.
//
// launch: --grid 2 --block 128 --arg in:f16[1024] --arg in:f16[128] --arg out:f32[1024]
// reference: warpgroup_product
// beyond compute-sanitizer: it does not read descriptors
#include <cuda_fp16.h>
__global__ void __cluster_dims__(2) product(const __half* a, const __half* b, float* d) {
  __shared__ __align__(128) __half s[2048];  // rows of 8 elements, 8 rows to 128 bytes
  int t = threadIdx.x;
  for (int i = t; i < 2048; i += 128)
    s[i] = i < 1024 ? a[i] : i < 1152 ? b[i - 1024] : __float2half(0.0f);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  unsigned place = __cvta_generic_to_shared(s);
#ifdef FIXED
  place &= 0x3FFFF;
#endif
  unsigned long long strides = 8ull << 16 | 16ull << 32;  // 128 and 256 bytes, in units of 16
  unsigned long long left = strides | place >> 4, right = strides | (place + 2048) >> 4;
  float x[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]) : "l"(left), "l"(right) : "memory");  // BUG memcheck: rank in descriptor
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])::"memory");
  for (int i = 0; i < 4; ++i) d[4 * t + i + 512 * blockIdx.x] = x[i];
}
