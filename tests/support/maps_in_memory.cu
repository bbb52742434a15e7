// Kernels that find their tensor maps behind pointers, in arrays and in structures.
#include <cuda.h>
#include <cassert>
#include <cstdint>
struct Globals { CUtensorMap source; int scale; CUtensorMap target; };
struct Maps { CUtensorMap each[2]; };

__device__ void load(const CUtensorMap *map, float *tile, unsigned long long *ready, int x, int y) {
  unsigned bar = __cvta_generic_to_shared(ready), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
  }
  __syncthreads();
  int done = 0;
  while (!done)
    asm volatile("{.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
}
__device__ void store(const CUtensorMap *map, float *tile, int x, int y) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"((unsigned)__cvta_generic_to_shared(tile)), "r"(x), "r"(y) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" __global__ void pointers(const CUtensorMap *a, const CUtensorMap *b, int n) {
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) unsigned long long ready;
  load(a, tile, &ready, blockIdx.x * 32, blockIdx.y * 8);
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] *= n;
  store(b, tile, blockIdx.x * 32, blockIdx.y * 8);
}
extern "C" __global__ void several(const CUtensorMap *maps, int n) {
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) unsigned long long ready;
  load(&maps[blockIdx.z], tile, &ready, blockIdx.x * 32, blockIdx.y * 8);
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] *= n;
  store(&maps[2 + blockIdx.z], tile, blockIdx.x * 32, blockIdx.y * 8);
}
extern "C" __global__ void whole(const __grid_constant__ Globals g) {
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) unsigned long long ready;
  load(&g.source, tile, &ready, blockIdx.x * 32, blockIdx.y * 8);
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] *= g.scale;
  store(&g.target, tile, blockIdx.x * 32, blockIdx.y * 8);
}
extern "C" __global__ void listed(const __grid_constant__ Maps maps, int n) {
  __shared__ alignas(128) float tile[256];
  __shared__ alignas(8) unsigned long long ready;
  load(&maps.each[0], tile, &ready, blockIdx.x * 32, blockIdx.y * 8);
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] *= n;
  store(&maps.each[1], tile, blockIdx.x * 32, blockIdx.y * 8);
}
CUtensorMap make(float *p, int rows, int columns) {
  CUtensorMap m;
  uint64_t d[2] = {(uint64_t)columns, (uint64_t)rows}, s[1] = {columns * sizeof(float)};
  uint32_t b[2] = {32, 8}, e[2] = {1, 1};
  auto r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, d, s, b, e, CU_TENSOR_MAP_INTERLEAVE_NONE,
    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  assert(r == CUDA_SUCCESS);
  return m;
}
CUtensorMap *on_device(const CUtensorMap &m) {
  CUtensorMap *d;
  cudaMalloc(&d, sizeof(CUtensorMap));
  cudaMemcpy(d, &m, sizeof(CUtensorMap), cudaMemcpyHostToDevice);
  return d;
}
int main() {
  int rows = 64, columns = 96;
  float *x, *y, *z;
  cudaMalloc(&x, rows * columns * 4);
  cudaMalloc(&y, rows * columns * 4);
  cudaMalloc(&z, rows * columns * 4);
  cudaMemset(x, 0, rows * columns * 4);
  auto mx = make(x, rows, columns), my = make(y, rows, columns);
  CUtensorMap *da = on_device(mx), *db = on_device(my);
  dim3 grid(columns / 32, rows / 8);
  pointers<<<grid, 32>>>(da, db, 2);
  CUtensorMap h[4] = {mx, my, make(y, rows, columns), make(z, rows, columns)};
  CUtensorMap *dm;
  cudaMalloc(&dm, sizeof(h));
  cudaMemcpy(dm, h, sizeof(h), cudaMemcpyHostToDevice);
  several<<<dim3(3, 8, 2), 32>>>(dm, 3);
  Globals g{mx, 5, my};
  whole<<<grid, 32>>>(g);
  Maps maps;
  maps.each[0] = mx; maps.each[1] = my;
  listed<<<grid, 32>>>(maps, 2);
}
