// Copies rows of a tensor to another one, by two tensor maps in constant memory.
#include <cuda.h>

__constant__ CUtensorMap source;
__constant__ CUtensorMap targets[2];

__global__ void moved()
{
  __shared__ __align__(128) float tile[256];
  __shared__ unsigned long long ready;
  unsigned bar = __cvta_generic_to_shared(&ready), to = __cvta_generic_to_shared(tile);
  int row = 8 * blockIdx.x, done = 0;
  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&source) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(&source), "r"(0), "r"(row), "r"(bar) : "memory");
  }
  __syncthreads();
  while (!done)
    asm volatile("{.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(&targets[1]), "r"(to), "r"(0), "r"(row) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}

void encode(CUtensorMap *map, float *data)
{
  cuuint64_t extents[2] = {32, 16}, strides[1] = {128};
  cuuint32_t box[2] = {32, 8}, ones[2] = {1, 1};
  cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, extents, strides, box, ones,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                         CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

int main()
{
  float *a, *b, *host = new float[512];
  cudaMalloc(&a, 512 * sizeof(float));
  cudaMalloc(&b, 512 * sizeof(float));
  for (int i = 0; i < 512; ++i) host[i] = i;
  cudaMemcpy(a, host, 512 * sizeof(float), cudaMemcpyHostToDevice);
  CUtensorMap one, two[2];
  encode(&one, a);
  encode(&two[0], a);
  encode(&two[1], b);
  cudaMemcpyToSymbol(source, &one, sizeof(one));
  cudaMemcpyToSymbol(targets, two, sizeof(two));
  moved<<<2, 32>>>();
  cudaMemcpy(host, b, 512 * sizeof(float), cudaMemcpyDeviceToHost);
}
