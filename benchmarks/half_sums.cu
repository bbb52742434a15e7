// Kernels that add to halves, by whose times on an H200 the error of such times was found
// (docs/results/README.md, `h200-cas-loops.csv`). Each is measured on a GPU, or modelled, by
//
//   memlab run benchmarks/half_sums.cu:sum --grid 64 --block 256 --arg f16[16384] --arg inout:f16[1]=zeros --arg i32=16384
//   memlab run benchmarks/half_sums.cu:sum --grid 64 --block 256 --arg f16[16384]=uniform:-1:1 --arg inout:f16[1]=zeros --arg i32=16384
//   memlab run benchmarks/half_sums.cu:sum --grid 4096 --block 256 --arg f16[1048576] --arg inout:f16[1]=zeros --arg i32=1048576
//   memlab run benchmarks/half_sums.cu:sum_bfloat --grid 512 --block 256 --arg bf16[131072] --arg inout:bf16[1]=zeros --arg i32=131072
//   memlab run benchmarks/half_sums.cu:bins --grid 4096 --block 256 --arg f16[1048576] --arg i32[1048576]=randint:0:4096
//     --arg inout:f16[4096]=zeros --arg i32=1048576
//   memlab run benchmarks/half_sums.cu:bins --grid 4096 --block 256 --arg f16[1048576] --arg i32[1048576]=randint:0:262144
//     --arg inout:f16[262144]=zeros --arg i32=1048576
//   memlab run benchmarks/half_sums.cu:blocks --grid 16384 --block 256 --arg f16[4194304] --arg inout:f16[1]=zeros --arg i32=4194304
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void sum(const half* x, half* total, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(total, x[i]);
}

__global__ void sum_bfloat(const __nv_bfloat16* x, __nv_bfloat16* total, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(total, x[i]);
}

__global__ void bins(const half* x, const int* bin, half* total, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(total + bin[i], x[i]);
}

// One addition of each block: its mean.
__global__ void blocks(const half* x, half* total, int n) {
  __shared__ float part[8];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = i < n ? (float)x[i] : 0.f;
  for (int lanes = 16; lanes; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    for (int warp = 0; warp < 8; ++warp) all += part[warp];
    atomicAdd(total, __float2half(all / 256));
  }
}
