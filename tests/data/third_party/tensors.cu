// wmma, mma.sync, ldmatrix and stmatrix, as people write them.
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
template <typename T, typename A, int M, int N, int K, typename LA, typename LB, typename P>
__device__ void product(const T* a, const T* b, A* c, int lda, int ldb) {
  wmma::fragment<wmma::matrix_a, M, N, K, P, LA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, P, LB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, A> fc;
  wmma::fill_fragment(fc, A(1));
  wmma::load_matrix_sync(fa, a, lda);
  wmma::load_matrix_sync(fb, b, ldb);
  wmma::mma_sync(fc, fa, fb, fc);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fc.x[i] * A(2);
  wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}
using R = wmma::row_major; using C = wmma::col_major;
extern "C" __global__ void w16_rr(const half* a, const half* b, float* c) { product<half, float, 16, 16, 16, R, R, half>(a, b, c, 16, 16); }
extern "C" __global__ void w16_cr_half(const half* a, const half* b, half* c) { product<half, half, 16, 16, 16, C, R, half>(a, b, c, 16, 16); }
extern "C" __global__ void w8_rr(const half* a, const half* b, float* c) { product<half, float, 8, 32, 16, R, R, half>(a, b, c, 16, 32); }
extern "C" __global__ void w16_s8(const signed char* a, const signed char* b, int* c) { product<signed char, int, 16, 16, 16, R, C, signed char>(a, b, c, 16, 16); }
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void w16_tf32(const float* a, const float* b, float* c) { product<float, float, 16, 16, 8, R, R, wmma::precision::tf32>(a, b, c, 8, 16); }
extern "C" __global__ void w8_f64(const double* a, const double* b, double* c) { product<double, double, 8, 8, 4, R, C, double>(a, b, c, 4, 4); }
#endif
// the usual tiled GEMM with wmma from shared memory
extern "C" __global__ void wmma_gemm(const half* a, const half* b, float* c, int m, int n, int k) {
  __shared__ half sa[32 * 16], sb[16 * 32];
  int warp = threadIdx.x / 32, wr = warp / 2, wc = warp % 2;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.f);
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = threadIdx.x; i < 32 * 16; i += blockDim.x) {
      sa[i] = a[(blockIdx.y * 32 + i / 16) * k + k0 + i % 16];
      sb[i] = b[(k0 + i / 32) * n + blockIdx.x * 32 + i % 32];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, R> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, R> fb;
    wmma::load_matrix_sync(fa, sa + wr * 256, 16);
    wmma::load_matrix_sync(fb, sb + wc * 16, 32);
    wmma::mma_sync(acc, fa, fb, acc);
    __syncthreads();
  }
  wmma::store_matrix_sync(c + (blockIdx.y * 32 + wr * 16) * n + blockIdx.x * 32 + wc * 16, acc, n, wmma::mem_row_major);
}
extern "C" __global__ void mma_s8(const int* a, const int* b, int* c) {
  int t = threadIdx.x, g = t / 4, r = t % 4;
#if __CUDA_ARCH__ >= 800
  int d0 = 0, d1 = 0, d2 = 0, d3 = 0; // A 16x32 bytes row: 8 ints a row; B 32x8 col: 8 ints a column
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3)
    : "r"(a[g * 8 + r]), "r"(a[(g + 8) * 8 + r]), "r"(a[g * 8 + r + 4]), "r"(a[(g + 8) * 8 + r + 4]), "r"(b[g * 8 + r]), "r"(b[g * 8 + r + 4]));
  c[g * 8 + 2 * r] = d0; c[g * 8 + 2 * r + 1] = d1; c[(g + 8) * 8 + 2 * r] = d2; c[(g + 8) * 8 + 2 * r + 1] = d3;
#else
  int d0 = 0, d1 = 0;
  for (int half = 0; half < 2; ++half) for (int k = 0; k < 8; k += 4) {
    d0 = d1 = 0;
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(d0), "+r"(d1) : "r"(a[(g + 8 * half) * 8 + r + k]), "r"(b[g * 8 + r + k]));
    c[(g + 8 * half) * 8 + 2 * r] = d0 + (k ? c[(g + 8 * half) * 8 + 2 * r] : 0); c[(g + 8 * half) * 8 + 2 * r + 1] = d1 + (k ? c[(g + 8 * half) * 8 + 2 * r + 1] : 0);
  }
#endif
}
extern "C" __global__ void ldmatrix_mma(const half* a, const half* b, float* c) {
  __shared__ __align__(16) half sa[16 * 16], sb[16 * 8];
  int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) sa[i] = a[i];
  for (int i = t; i < 128; i += 32) sb[i] = b[i];
  __syncwarp();
  unsigned ra[4], rb[2]; float d[4] = {0, 0, 0, 0};
  unsigned pa = (unsigned)__cvta_generic_to_shared(sa + (t % 16) * 16 + (t / 16) * 8), pb = (unsigned)__cvta_generic_to_shared(sb + (t % 16) * 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(ra[0]), "r"(ra[1]), "r"(rb[0]));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(ra[2]), "r"(ra[3]), "r"(rb[1]));
#endif
  int g = t / 4, r = t % 4;
  c[g * 8 + 2 * r] = d[0]; c[g * 8 + 2 * r + 1] = d[1]; c[(g + 8) * 8 + 2 * r] = d[2]; c[(g + 8) * 8 + 2 * r + 1] = d[3];
}
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void dmma(const double* a, const double* b, double* c) {
  int t = threadIdx.x; double d0 = 0, d1 = 0;
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(d0), "+d"(d1) : "d"(a[t]), "d"(b[t]));
  c[(t / 4) * 8 + 2 * (t % 4)] = d0; c[(t / 4) * 8 + 2 * (t % 4) + 1] = d1;
}
#endif
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void stmatrix(const unsigned* a, half* c) {
  __shared__ __align__(16) half s[32 * 8];
  int t = threadIdx.x; unsigned p = (unsigned)__cvta_generic_to_shared(s + t * 8);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" :: "r"(p), "r"(a[t]), "r"(a[32 + t]), "r"(a[64 + t]), "r"(a[96 + t]) : "memory");
  __syncwarp();
  for (int i = t; i < 256; i += 32) c[i] = s[i];
}
#endif
