// Matrix products on the tensor cores: C = A B, A and B in 16 bits, C in float, all row-major.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

// A warp per 16 x 16 of C, its operands straight from global memory.
extern "C" __global__ void wmma_direct(const __half* a, const __half* b, float* c, int m, int n,
                                       int k) {
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  int row = warp / (n / 16) * 16, column = warp % (n / 16) * 16;
  if (row >= m) return;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
  wmma::fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(left, a + row * k + i, k);
    wmma::load_matrix_sync(right, b + i * n + column, n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

// 64 x 64 a block of four warps, tiles of 32 in shared memory, 32 x 32 a warp.
extern "C" __global__ void wmma_shared(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                                       int m, int n, int k) {
  __shared__ __align__(16) __nv_bfloat16 left[64][40], right[32][72];
  int t = threadIdx.x, warp = t / 32;
  int row = blockIdx.y * 64, column = blockIdx.x * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
  for (int p = 0; p < 4; p++) wmma::fill_fragment(sum[p / 2][p % 2], 0.0f);
  for (int first = 0; first < k; first += 32) {
    for (int i = t; i < 256; i += 128) {
      *reinterpret_cast<uint4*>(&left[i / 4][i % 4 * 8]) =
          *reinterpret_cast<const uint4*>(a + (row + i / 4) * k + first + i % 4 * 8);
      *reinterpret_cast<uint4*>(&right[i / 8][i % 8 * 8]) =
          *reinterpret_cast<const uint4*>(b + (first + i / 8) * n + column + i % 8 * 8);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> x[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> y[2];
#pragma unroll
      for (int p = 0; p < 2; p++) {
        wmma::load_matrix_sync(x[p], &left[warp / 2 * 32 + p * 16][i], 40);
        wmma::load_matrix_sync(y[p], &right[i][warp % 2 * 32 + p * 16], 72);
      }
#pragma unroll
      for (int p = 0; p < 4; p++) wmma::mma_sync(sum[p / 2][p % 2], x[p / 2], y[p % 2], sum[p / 2][p % 2]);
    }
    __syncthreads();
  }
  for (int p = 0; p < 4; p++) {
    int y = row + warp / 2 * 32 + p / 2 * 16, x = column + warp % 2 * 32 + p % 2 * 16;
    wmma::store_matrix_sync(c + y * n + x, sum[p / 2][p % 2], n, wmma::mem_row_major);
  }
}

__device__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

template <bool kBrain>
__device__ void multiply_add(float* d, const unsigned* a, const unsigned* b) {
  if (kBrain) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// 128 x 128 a block of eight warps, 64 x 32 a warp; two stages of cp.async, ldmatrix from rows
// of 40 elements, which keep the banks apart.
template <bool kBrain>
__device__ void product_mma(const unsigned short* a, const unsigned short* b, float* c, int n,
                            int k) {
  __shared__ __align__(16) unsigned short left[2][128][40], right[2][32][136];
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  int row = blockIdx.y * 128, column = blockIdx.x * 128;
  int y0 = warp / 4 * 64, x0 = warp % 4 * 32;
  float sum[4][4][4] = {};
  auto fetch = [&](int stage, int first) {
#pragma unroll
    for (int i = t; i < 512; i += 256) {
      const void* from = a + (size_t)(row + i / 4) * k + first + i % 4 * 8;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       shared_address(&left[stage][i / 4][i % 4 * 8])),
                   "l"(from));
      from = b + (size_t)(first + i / 16) * n + column + i % 16 * 8;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       shared_address(&right[stage][i / 16][i % 16 * 8])),
                   "l"(from));
    }
    asm volatile("cp.async.commit_group;");
  };
  fetch(0, 0);
  for (int tile = 0; tile < k / 32; tile++) {
    int stage = tile % 2;
    if (tile + 1 < k / 32) {
      fetch(1 - stage, (tile + 1) * 32);
      asm volatile("cp.async.wait_group 1;");
    } else {
      asm volatile("cp.async.wait_group 0;");
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i += 16) {
      unsigned x[4][4], y[4][2];
#pragma unroll
      for (int p = 0; p < 4; p++) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[p][0]), "=r"(x[p][1]), "=r"(x[p][2]), "=r"(x[p][3])
                     : "r"(shared_address(
                         &left[stage][y0 + p * 16 + lane % 16][i + lane / 16 * 8])));
      }
#pragma unroll
      for (int q = 0; q < 4; q++) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(y[q][0]), "=r"(y[q][1])
                     : "r"(shared_address(&right[stage][i + lane % 16][x0 + q * 8])));
      }
#pragma unroll
      for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int q = 0; q < 4; q++) multiply_add<kBrain>(sum[p][q], x[p], y[q]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int p = 0; p < 4; p++) {
#pragma unroll
    for (int q = 0; q < 4; q++) {
      float* to = c + (size_t)(row + y0 + p * 16 + lane / 4) * n + column + x0 + q * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sum[p][q][0], sum[p][q][1]);
      *reinterpret_cast<float2*>(to + 8 * n) = make_float2(sum[p][q][2], sum[p][q][3]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
    mma_half(const __half* a, const __half* b, float* c, int n, int k) {
  product_mma<false>(reinterpret_cast<const unsigned short*>(a),
                     reinterpret_cast<const unsigned short*>(b), c, n, k);
}

extern "C" __global__ void __launch_bounds__(256)
    mma_brain(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  product_mma<true>(reinterpret_cast<const unsigned short*>(a),
                    reinterpret_cast<const unsigned short*>(b), c, n, k);
}
