// Kernels that edit tensor maps, as grouped products do.
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;

__device__ void wait(unsigned bar) {
  int done = 0;
  while (!done)
    asm volatile("{.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
}

// Each block makes a map of its own of a matrix, in shared memory or, with more changes, in global.
extern "C" __global__ void grouped(const __grid_constant__ CUtensorMap pattern, CUtensorMap *maps,
                                   const float *const *data, const int *shapes, float *out, int in_shared)
{
  __shared__ alignas(128) CUtensorMap edited;
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) unsigned long long ready;
  unsigned bar = __cvta_generic_to_shared(&ready), to = __cvta_generic_to_shared(tile);
  CUtensorMap *own = maps + blockIdx.x;
  int rows = shapes[3 * blockIdx.x], columns = shapes[3 * blockIdx.x + 1], pitch = shapes[3 * blockIdx.x + 2];
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
  if (threadIdx.x < 16)
    ((unsigned long long *)&edited)[threadIdx.x] = ((const unsigned long long *)&pattern)[threadIdx.x];
  __syncwarp();
  if (in_shared) {
    if (threadIdx.x == 0) {
      ptx::tensormap_replace_global_address(ptx::space_shared, &edited, data[blockIdx.x]);
      ptx::tensormap_replace_global_dim(ptx::space_shared, &edited, ptx::n32_t<0>(), columns);
      ptx::tensormap_replace_global_dim(ptx::space_shared, &edited, ptx::n32_t<1>(), rows);
      ptx::tensormap_replace_global_stride(ptx::space_shared, &edited, ptx::n32_t<0>(), (unsigned long long)pitch);
    }
    __syncwarp();
    ptx::tensormap_cp_fenceproxy(ptx::sem_release, ptx::scope_gpu, own, &edited, ptx::n32_t<128>());
  } else {
    if (threadIdx.x < 16)
      ((unsigned long long *)own)[threadIdx.x] = ((unsigned long long *)&edited)[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) {
      ptx::tensormap_replace_global_address(ptx::space_global, own, data[blockIdx.x]);
      ptx::tensormap_replace_global_dim(ptx::space_global, own, ptx::n32_t<0>(), columns);
      ptx::tensormap_replace_global_dim(ptx::space_global, own, ptx::n32_t<1>(), rows);
      ptx::tensormap_replace_global_stride(ptx::space_global, own, ptx::n32_t<0>(), (unsigned long long)pitch);
      ptx::tensormap_replace_box_dim(ptx::space_global, own, ptx::n32_t<1>(), 4);
      ptx::tensormap_replace_fill_mode(ptx::space_global, own, ptx::n32_t<1>());
    }
    __syncwarp();
    ptx::fence_proxy_tensormap_generic(ptx::sem_release, ptx::scope_gpu);
  }
  ptx::fence_proxy_tensormap_generic(ptx::sem_acquire, ptx::scope_gpu, own, ptx::n32_t<128>());
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(in_shared ? 1024 : 512) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(own), "r"(0), "r"(0), "r"(bar) : "memory");
  }
  __syncwarp();
  wait(bar);
  for (int i = threadIdx.x; i < (in_shared ? 256 : 128); i += 32) out[blockIdx.x * 256 + i] = tile[i];
}

// Makes the map of bf16[4,40,64]:box[2,8,32]:step[1,2,1]:swizzle64, of another one or of zeros, and
// shows it and that which is encoded so; with INTERLEAVE, its dimensions count slices.
#ifndef INTERLEAVE
#define INTERLEAVE 0
#endif

extern "C" __global__ void all_fields(const __grid_constant__ CUtensorMap map,
                                      const __grid_constant__ CUtensorMap wanted,
                                      unsigned long long *out, int from_zeros)
{
  __shared__ alignas(128) CUtensorMap edited;
  unsigned long long *words = (unsigned long long *)&edited;
  for (int i = 0; i < 16; ++i)
    words[i] = from_zeros ? 0 : ((const unsigned long long *)&map)[i];
  auto space = ptx::space_shared;
  ptx::tensormap_replace_rank(space, &edited, 2);
  ptx::tensormap_replace_elemtype(space, &edited, ptx::n32_t<10>());
  ptx::tensormap_replace_global_dim(space, &edited, ptx::n32_t<0>(), 64);
  ptx::tensormap_replace_global_dim(space, &edited, ptx::n32_t<1>(), 40);
  ptx::tensormap_replace_global_dim(space, &edited, ptx::n32_t<2>(), 4);
  ptx::tensormap_replace_global_stride(space, &edited, ptx::n32_t<0>(), 128ull);
  ptx::tensormap_replace_global_stride(space, &edited, ptx::n32_t<1>(), 5120ull);
  ptx::tensormap_replace_box_dim(space, &edited, ptx::n32_t<0>(), 32);
  ptx::tensormap_replace_box_dim(space, &edited, ptx::n32_t<1>(), 8);
  ptx::tensormap_replace_box_dim(space, &edited, ptx::n32_t<2>(), 2);
  ptx::tensormap_replace_element_size(space, &edited, ptx::n32_t<0>(), 1);
  ptx::tensormap_replace_element_size(space, &edited, ptx::n32_t<1>(), 2);
  ptx::tensormap_replace_element_size(space, &edited, ptx::n32_t<2>(), 1);
  ptx::tensormap_replace_swizzle_mode(space, &edited, ptx::n32_t<2>());
  ptx::tensormap_replace_fill_mode(space, &edited, ptx::n32_t<0>());
  ptx::tensormap_replace_interleave_layout(space, &edited, ptx::n32_t<INTERLEAVE / 16>());
  for (int i = 1; i < 16; ++i) {  // the first is the address
    out[i] = words[i];
    out[16 + i] = ((const unsigned long long *)&wanted)[i];
  }
}
