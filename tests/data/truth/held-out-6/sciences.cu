// Transforms, fields, particles, small systems and statistics.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Transforms of 32 points, a warp each, by exchanges between lanes.
extern "C" __global__ void fft_warp(const float2* in, float2* out, int batch) {
  const int lane = threadIdx.x & 31;
  for (int b = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; b < batch;
       b += (gridDim.x * blockDim.x) >> 5) {
    float2 v = in[(size_t)b * 32 + lane];
#pragma unroll
    for (int half = 16; half > 0; half >>= 1) {
      float2 o;
      o.x = __shfl_xor_sync(0xffffffff, v.x, half);
      o.y = __shfl_xor_sync(0xffffffff, v.y, half);
      if (lane & half) {
        float s, c;
        sincospif(-(float)(lane & (half - 1)) / half, &s, &c);
        const float dx = o.x - v.x, dy = o.y - v.y;
        v = make_float2(dx * c - dy * s, dx * s + dy * c);
      } else {
        v = make_float2(v.x + o.x, v.y + o.y);
      }
    }
    out[(size_t)b * 32 + (__brev(lane) >> 27)] = v;
  }
}

// A stage of a transform over whole numbers modulo a prime.
extern "C" __global__ void ntt_stage(unsigned* a, const unsigned* __restrict__ roots, int half,
                                     int n, unsigned prime) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  const int j = i & (half - 1), at = (i / half) * 2 * half + j;
  const unsigned u = a[at];
  const unsigned v = (unsigned)((unsigned long long)a[at + half] * roots[half + j] % prime);
  const unsigned sum = u + v;
  a[at] = sum >= prime ? sum - prime : sum;
  a[at + half] = u >= v ? u - v : u + prime - v;
}

__device__ __forceinline__ unsigned philox_word(unsigned c0, unsigned c1, unsigned key) {
#pragma unroll
  for (int r = 0; r < 10; r++) {
    const unsigned hi = __umulhi(0xD256D193u, c0), lo = 0xD256D193u * c0;
    c0 = hi ^ key ^ c1;
    c1 = lo;
    key += 0x9E3779B9u;
  }
  return c0;
}

// Half a sweep of Metropolis over the spins of Ising's model: one colour, read from the other.
extern "C" __global__ void flip_spins(signed char* own, const signed char* __restrict__ other,
                                      const float* __restrict__ accept, int nx, int ny, int black,
                                      unsigned seed) {
  const int tid = blockIdx.x * blockDim.x + threadIdx.x;
  const int i = tid / ny, j = tid % ny;
  if (i >= nx) return;
  const int up = i > 0 ? i - 1 : nx - 1, down = i + 1 < nx ? i + 1 : 0;
  const int left = j > 0 ? j - 1 : ny - 1, right = j + 1 < ny ? j + 1 : 0;
  const int joff = black ? (i % 2 ? right : left) : (i % 2 ? left : right);
  const int around = other[up * ny + j] + other[i * ny + j] + other[down * ny + j] +
                     other[i * ny + joff];
  const signed char spin = own[tid];
  const float u = (philox_word(tid, black, seed) >> 8) * 5.9604645e-8f;
  if (u < accept[(spin > 0 ? 5 : 0) + (around + 4) / 2]) own[tid] = -spin;
}

// Springs between pairs of particles: forces meet in atomics.
extern "C" __global__ void bond_forces(const float4* __restrict__ pos,
                                       const int2* __restrict__ bonds, float4* force, float k,
                                       float length, int n) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= n) return;
  const int2 ij = bonds[b];
  const float4 p = pos[ij.x], q = pos[ij.y];
  const float dx = q.x - p.x, dy = q.y - p.y, dz = q.z - p.z;
  const float r2 = dx * dx + dy * dy + dz * dz + 1e-6f;
  const float r = sqrtf(r2), f = k * (r - length) / r;
  atomicAdd(&force[ij.x].x, f * dx);
  atomicAdd(&force[ij.x].y, f * dy);
  atomicAdd(&force[ij.x].z, f * dz);
  atomicAdd(&force[ij.y].x, -f * dx);
  atomicAdd(&force[ij.y].y, -f * dy);
  atomicAdd(&force[ij.y].z, -f * dz);
}

#define IDX(z, y, x) (((size_t)(z) * n + (y)) * n + (x))

// The magnetic field of Yee's scheme in three dimensions.
extern "C" __global__ void update_magnetic(float* __restrict__ hx, float* __restrict__ hy,
                                           float* __restrict__ hz, const float* __restrict__ ex,
                                           const float* __restrict__ ey,
                                           const float* __restrict__ ez, int n, float c) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const int z = blockIdx.z;
  if (x >= n - 1 || y >= n - 1 || z >= n - 1) return;
  const size_t i = IDX(z, y, x);
  hx[i] -= c * (ez[IDX(z, y + 1, x)] - ez[i] - ey[IDX(z + 1, y, x)] + ey[i]);
  hy[i] -= c * (ex[IDX(z + 1, y, x)] - ex[i] - ez[IDX(z, y, x + 1)] + ez[i]);
  hz[i] -= c * (ey[IDX(z, y, x + 1)] - ey[i] - ex[IDX(z, y + 1, x)] + ex[i]);
}

// Density carried by a velocity: each cell reads where it was, between four cells.
extern "C" __global__ void advect(float* out, const float* in, const float2* velocity, int n,
                                  float dt) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  float2 v = velocity[y * n + x];
  float px = fminf(fmaxf(x - dt * v.x, 0.5f), n - 1.5f);
  float py = fminf(fmaxf(y - dt * v.y, 0.5f), n - 1.5f);
  int i = (int)floorf(px), j = (int)floorf(py);
  float s = px - i, t = py - j;
  out[y * n + x] = (1 - t) * ((1 - s) * in[j * n + i] + s * in[j * n + i + 1]) +
                   t * ((1 - s) * in[(j + 1) * n + i] + s * in[(j + 1) * n + i + 1]);
}

// Charges of particles spread to the four corners of their cells.
extern "C" __global__ void deposit_charge(const float* px, const float* py, const float* charge,
                                          float* density, int n, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = px[i], y = py[i], q = charge[i];
  int ix = (int)x, iy = (int)y;
  float fx = x - ix, fy = y - iy;
  float* cell = &density[iy * side + ix];
  atomicAdd(cell, q * (1.0f - fx) * (1.0f - fy));
  atomicAdd(cell + 1, q * fx * (1.0f - fy));
  atomicAdd(cell + side, q * (1.0f - fx) * fy);
  atomicAdd(cell + side + 1, q * fx * fy);
}

// The sum and the sum of squares: tiles of a warp reduce, two atomics a block.
extern "C" __global__ void moments(const float4* __restrict__ in, float* sums, int n4) {
  __shared__ float part[2][32];
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  float s = 0.0f, q = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += gridDim.x * blockDim.x) {
    float4 v = in[i];
    s += v.x + v.y + v.z + v.w;
    q += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  s = cg::reduce(warp, s, cg::plus<float>());
  q = cg::reduce(warp, q, cg::plus<float>());
  if (warp.thread_rank() == 0) {
    part[0][warp.meta_group_rank()] = s;
    part[1][warp.meta_group_rank()] = q;
  }
  block.sync();
  if (warp.meta_group_rank() < 2) {
    bool in_use = warp.thread_rank() < warp.meta_group_size();
    float v = in_use ? part[warp.meta_group_rank()][warp.thread_rank()] : 0.0f;
    v = cg::reduce(warp, v, cg::plus<float>());
    if (warp.thread_rank() == 0) atomicAdd(&sums[warp.meta_group_rank()], v);
  }
}

// C = A B of complex numbers, tiles of 16 by 16.
template <int TILE>
__device__ void complex_product(const float2* A, const float2* B, float2* C, int n) {
  __shared__ float2 As[TILE][TILE];
  __shared__ float2 Bs[TILE][TILE + 1];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float2 acc = {0.0f, 0.0f};
  for (int t = 0; t < n; t += TILE) {
    As[ty][tx] = A[row * n + t + tx];
    Bs[ty][tx] = B[(t + ty) * n + col];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; k++) {
      const float2 a = As[ty][k], b = Bs[k][tx];
      acc.x += a.x * b.x - a.y * b.y;
      acc.y += a.x * b.y + a.y * b.x;
    }
    __syncthreads();
  }
  C[row * n + col] = acc;
}

extern "C" __global__ void product_complex(const float2* A, const float2* B, float2* C, int n) {
  complex_product<16>(A, B, C, n);
}
