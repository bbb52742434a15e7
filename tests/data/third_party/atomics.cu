// Atomics of all kinds, loops around them, and what is built on them, as people write them.
#include <cuda/atomic>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ double add_by_cas(double* p, double v) {
  unsigned long long *a = (unsigned long long*)p, old = *a, seen;
  do { seen = old; old = atomicCAS(a, seen, __double_as_longlong(v + __longlong_as_double(seen))); } while (seen != old);
  return __longlong_as_double(old);
}
__device__ float max_by_cas(float* p, float v) {
  int *a = (int*)p, old = *a, seen;
  do { seen = old; old = atomicCAS(a, seen, __float_as_int(fmaxf(v, __int_as_float(seen)))); } while (seen != old);
  return __int_as_float(old);
}
extern "C" __global__ void cas_loops(const double* x, double* total, float* most, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { add_by_cas(total, x[i]); max_by_cas(most, (float)x[i]); }
}
extern "C" __global__ void libcudacxx(const int* x, int* out, cuda::atomic<int, cuda::thread_scope_device>* counter, long long* wide, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  cuda::atomic_ref<int, cuda::thread_scope_device> low(out[0]);
  low.fetch_min(x[i]);
  cuda::atomic_ref<int, cuda::thread_scope_block> high(out[1]);
  high.fetch_max(x[i], cuda::memory_order_relaxed);
  counter->fetch_add(1, cuda::std::memory_order_acq_rel);
  cuda::atomic_ref<long long> w(*wide);
  w += x[i];
  cuda::atomic_ref<int> either(out[2]);
  either.fetch_or(x[i] & 255);
  cuda::atomic_ref<int> exclusive(out[3]);
  exclusive ^= x[i];
  int expected = 0;
  cuda::atomic_ref<int> once(out[4]);
  if (once.compare_exchange_strong(expected, 77)) atomicAdd(&out[5], 1);
}
extern "C" __global__ void many_kinds(const int* x, unsigned* u, long long* l, unsigned long long* ul, float* f, int* seen, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicInc(&u[0], 9); atomicDec(&u[1], 6); atomicMin(&u[2], (unsigned)x[i]); atomicMax(&u[3], (unsigned)x[i]);
  atomicAnd(&u[4], x[i] | 0xff00); atomicOr(&u[5], x[i] & 0xff); atomicXor(&u[6], x[i]); atomicSub(&u[7], 3);
  atomicMin(&l[0], (long long)x[i] * 1000000007LL); atomicMax(&l[1], (long long)x[i] * 1000000007LL);
  atomicAdd(&ul[0], (unsigned long long)(long long)x[i]); atomicOr(&ul[1], 1ULL << (i & 63)); atomicAnd(&ul[2], ~(1ULL << (i & 31)));
  atomicXor(&ul[3], (unsigned long long)x[i] << 20); atomicMax(&ul[4], (unsigned long long)x[i]); atomicMin(&ul[5], (unsigned long long)(x[i] & 0x7fffffff));
  seen[i] = atomicExch(&seen[n], i);
  f[1 + i] = atomicExch(&f[0], (float)i);
  atomicAdd_block(&u[8], 1); atomicAdd_system(&u[9], 2); atomicExch(&ul[6], 5ull);
  atomicCAS(&ul[7], 0ull, 9ull);
  unsigned short *s = (unsigned short*)&u[10]; atomicCAS(s, (unsigned short)0, (unsigned short)321);
}
extern "C" __global__ void half_sums(__half2* h, __half* h1, __nv_bfloat162* b, float* f) {
  atomicAdd(h, __floats2half2_rn(1.f, 0.5f)); atomicAdd(h1, __float2half(0.25f));
  atomicAdd(b, __floats2bfloat162_rn(1.f, 2.f));
#if __CUDA_ARCH__ >= 900
  atomicAdd((float2*)f, make_float2(1.f, 2.f)); atomicAdd((float4*)(f + 4), make_float4(1.f, 2.f, 3.f, 4.f));
#endif
}
__device__ unsigned finished;
extern "C" __global__ void last_block(const float* x, float* partial, float* total, int n) {
  __shared__ float s[128]; __shared__ bool last;
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  s[threadIdx.x] = v; __syncthreads();
  for (int d = 64; d; d >>= 1) { if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d]; __syncthreads(); }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s[0]; __threadfence();
    last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    volatile float* p = partial;
    if (threadIdx.x == 0) { float t = 0; for (int b = 0; b < gridDim.x; ++b) t += p[b]; *total = t; finished = 0; }
  }
}
extern "C" __global__ void mutex(int* lock, int* value) {
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    *(volatile int*)value += 1;
    __threadfence();
    atomicExch(lock, 0);
  }
}
extern "C" __global__ void wide_cas(unsigned __int128* p, long long* out) {
#if __CUDA_ARCH__ >= 900
  unsigned __int128 seen = atomicCAS(p, (unsigned __int128)0, (unsigned __int128)7 << 64 | threadIdx.x);
  out[threadIdx.x] = (long long)(seen >> 64);
  unsigned __int128 was = atomicExch(p + 1, (unsigned __int128)threadIdx.x << 64);
  out[32 + threadIdx.x] = (long long)(was >> 64);
#endif
}
