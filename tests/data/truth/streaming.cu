// Streaming: each thread moves or updates a few elements that no other thread touches.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" __global__ void copy_float(const float* from, float* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}

extern "C" __global__ void copy_float4(const float4* from, float4* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}

extern "C" __global__ void add_bytes(const unsigned char* a, const unsigned char* b,
                                     unsigned char* sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = min(a[i] + b[i], 255);
}

extern "C" __global__ void triad(float* a, const float* b, const float* c, float factor, int n) {
  int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    a[i] = b[i] + factor * c[i];
  }
}

extern "C" __global__ void axpy_double(double a, const double* __restrict__ x, double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void axpy_half2(const __half2* x, __half2* y, float a, int pairs) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < pairs) y[i] = __hfma2(__float2half2_rn(a), x[i], y[i]);
}

// GELU on eight bfloat16 elements, loaded as 16 bytes.
extern "C" __global__ void gelu_bf16(const uint4* in, uint4* out, int groups) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= groups) return;
  uint4 raw = in[i];
  __nv_bfloat162* pair = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int p = 0; p < 4; p++) {
    float2 v = __bfloat1622float2(pair[p]);
    v.x = 0.5f * v.x * (1.0f + tanhf(0.7978845608f * (v.x + 0.044715f * v.x * v.x * v.x)));
    v.y = 0.5f * v.y * (1.0f + tanhf(0.7978845608f * (v.y + 0.044715f * v.y * v.y * v.y)));
    pair[p] = __floats2bfloat162_rn(v.x, v.y);
  }
  out[i] = raw;
}

// Particles as a structure of arrays, and as an array of structures of 32 bytes.
extern "C" __global__ void drift_arrays(float* x, float* y, float* z, const float* u,
                                        const float* v, const float* w, float dt, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  x[i] += dt * u[i];
  y[i] += dt * v[i];
  z[i] += dt * w[i];
}

struct Particle {
  float x, y, z, mass, u, v, w, charge;
};

extern "C" __global__ void drift_structures(Particle* particles, float dt, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Particle& p = particles[i];
  p.x += dt * p.u;
  p.y += dt * p.v;
  p.z += dt * p.w;
}

// Adam: four streams in, three out, a square root and a division.
extern "C" __global__ void adam(float* weight, const float* gradient, float* mean, float* square,
                                float rate, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float g = gradient[i];
    float m = mean[i] = 0.9f * mean[i] + 0.1f * g;
    float s = square[i] = 0.999f * square[i] + 0.001f * g * g;
    weight[i] -= rate * m / (sqrtf(s) + 1e-8f);
  }
}

// Each block streams its part through shared memory, two tiles ahead (cp.async).
extern "C" __global__ void scale_pipelined(const float4* in, float4* out, float factor,
                                           int tiles) {
  constexpr int kStages = 3;
  __shared__ float4 stage[kStages][256];
  const float4* from = in + (size_t)blockIdx.x * tiles * 256 + threadIdx.x;
  float4* to = out + (size_t)blockIdx.x * tiles * 256 + threadIdx.x;
  for (int tile = 0; tile < kStages - 1; tile++) {
    if (tile < tiles)
      __pipeline_memcpy_async(&stage[tile][threadIdx.x], from + tile * 256, sizeof(float4));
    __pipeline_commit();
  }
  for (int tile = 0; tile < tiles; tile++) {
    int ahead = tile + kStages - 1;
    if (ahead < tiles)
      __pipeline_memcpy_async(&stage[ahead % kStages][threadIdx.x], from + ahead * 256,
                              sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(kStages - 1);
    float4 v = stage[tile % kStages][threadIdx.x];
    to[tile * 256] = make_float4(factor * v.x, factor * v.y, factor * v.z, factor * v.w);
  }
}
