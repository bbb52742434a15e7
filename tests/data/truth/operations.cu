// Operations of one kind, many for each number loaded, to compare their counts by pipe.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// MurmurHash3's 32-bit mixing without a loop: shifts, exclusive ors and products.
extern "C" __global__ void hash_straight(const unsigned* in, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = in[i];
#pragma unroll
  for (int r = 0; r < 8; r++) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
  }
  out[i] = h;
}

// Marsaglia's xorshift: shifts and logic alone.
extern "C" __global__ void shifts_and_logic(const unsigned* in, unsigned* out, int rounds, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = in[i];
  for (int r = 0; r < rounds; r++) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
  }
  out[i] = x;
}

// Two linear congruential generators in a thread, of 32 and of 64 bits: integer multiply-adds.
extern "C" __global__ void multiply_adds(const unsigned* in, unsigned* out, int rounds, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned narrow = in[i];
  unsigned long long wide = narrow;
  for (int r = 0; r < rounds; r++) {
    narrow = narrow * 1664525u + 1013904223u;
    wide = wide * 6364136223846793005ull + 1442695040888963407ull;
  }
  out[i] = narrow ^ (unsigned)(wide >> 32);
}

// Quotients and remainders by numbers that only the data knows.
extern "C" __global__ void divides(const unsigned* a, const unsigned* b, unsigned* quotient,
                                   int* remainder, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  quotient[i] = a[i] / b[i];
  remainder[i] = (int)a[i] % (int)b[i];
}

// Bits that are set, leading zeros, and the order of bits turned round.
extern "C" __global__ void counts_of_bits(const unsigned* in, unsigned* out, int rounds, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = in[i], sum = 0;
  for (int r = 0; r < rounds; r++) {
    sum += __popc(x) + __clz(x);
    x = __brev(x) + sum;
  }
  out[i] = sum;
}

// Dot products of four bytes, smallest and largest values, and choices.
extern "C" __global__ void bytes_and_choices(const int* a, const int* b, int* out, int rounds,
                                             int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = a[i], y = b[i], sum = 0;
  for (int r = 0; r < rounds; r++) {
    sum = __dp4a(x, y, sum);
    x = min(x, y ^ sum);
    y = sum > 0 ? max(y, x) : y + 1;
  }
  out[i] = sum;
}

// A polynomial by Horner's rule with two halves in each register, then a product and a sum.
extern "C" __global__ void half2_polynomial(const __half2* in, __half2* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half2 x = in[i], y = __float2half2_rn(1.0f);
#pragma unroll
  for (int d = 0; d < 32; d++) y = __hfma2(y, x, __float2half2_rn(0.5f));
  out[i] = __hadd2_rn(__hmul2_rn(y, x), x);
}

// The same with one half in each register.
extern "C" __global__ void half_polynomial(const __half* in, __half* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half x = in[i], y = __float2half(1.0f);
#pragma unroll
  for (int d = 0; d < 32; d++) y = __hfma(y, x, __float2half(0.5f));
  out[i] = __hadd_rn(__hmul_rn(y, x), x);
}

// The same with two bfloat16 in each register.
extern "C" __global__ void bf16_polynomial(const __nv_bfloat162* in, __nv_bfloat162* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat162 x = in[i], y = __float2bfloat162_rn(1.0f);
#pragma unroll
  for (int d = 0; d < 32; d++) y = __hfma2(y, x, __float2bfloat162_rn(0.5f));
  out[i] = __hadd2_rn(__hmul2_rn(y, x), x);
}
