// Step 8: a warp multiplies small matrices on its tensor cores (mma.sync), in TF32, FP16 or BF16.
//
// P (m x n) = M (m x k) * N (k x n), row-major, any sizes, P and all sums in float32. A block
// computes TILE x TILE elements of P, each of its warps 64 x 32 of them. INPUT is the type that the
// tensor cores multiply: for FP16 and BF16 the matrices have this type; for TF32 they have float32,
// which is rounded to TF32's 10 bits of fraction on the way into shared memory.
//
// What to expect: one instruction is 2,048 FMAs (FP16, BF16; 1,024 for TF32) where an FFMA is 32,
// and operands are read from shared memory one matrix at a time (ldmatrix), so the kernel far exceeds
// the FP32 peak, and feeding the tensor cores is the limit. Rounding the inputs costs accuracy: a
// product is off by a factor of up to (1 + u)^2, u = 2^-11 for TF32 and FP16, 2^-8 for BF16; products
// are exact and sums are float32. On compute capability 9.0, mma.sync was measured at less than two
// thirds of the peak (Luo et al., arXiv:2402.13499); the rest needs wgmma.

#define TF32 1
#define FP16 2
#define BF16 3

#if INPUT == TF32
typedef float Element;
__device__ unsigned bits_of(Element element) { return __float_as_uint(element); }
#elif INPUT == FP16
#include <cuda_fp16.h>
typedef __half Element;
__device__ unsigned bits_of(Element element) { return __half_as_ushort(element); }
#else
#include <cuda_bf16.h>
typedef __nv_bfloat16 Element;
__device__ unsigned bits_of(Element element) { return __bfloat16_as_ushort(element); }
#endif

#define WARP_ROWS 64
#define WARP_COLUMNS 32
#define WARPS_ACROSS (TILE / WARP_COLUMNS)
#define THREADS (32 * WARPS_ACROSS * (TILE / WARP_ROWS))

// Matrices are moved in chunks of 16 bytes. A row of M_tile has 4: 16 elements of TF32, or 32.
#define CHUNK (16 / (int)sizeof(Element))
#define DEPTH (4 * CHUNK)
#define STEP (2 * CHUNK)  // the extent of one mma along k
#define N_PITCH (TILE + 8)

// Chunks of M are permuted within their row, and rows of N are padded, so that the rows that a warp
// reads together are in different banks.
__device__ int swizzled(int row, int chunk) { return 4 * row + (chunk ^ (row >> 1 & 3)); }

__device__ unsigned rounded(unsigned bits) {
#if INPUT == TF32
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
#endif
  return bits;
}

// 16 bytes from a row of a matrix, of which `valid` elements are inside it; zeros for the others.
__device__ uint4 load(const Element* from, int valid, bool aligned) {
  unsigned words[4] = {};
  if (aligned && valid >= CHUNK) {
    uint4 whole = *reinterpret_cast<const uint4*>(from);
    words[0] = whole.x, words[1] = whole.y, words[2] = whole.z, words[3] = whole.w;
  } else {
    constexpr int PER_WORD = 4 / sizeof(Element);
    for (int e = 0; e < CHUNK; ++e) {
      if (e < valid) {
        words[e / PER_WORD] |= bits_of(from[e]) << 16 * (e % PER_WORD);
      }
    }
  }
  return make_uint4(rounded(words[0]), rounded(words[1]), rounded(words[2]), rounded(words[3]));
}

// Four 8 x 8 matrices of 16-bit elements; lane l addresses row l % 8 of matrix l / 8. Of the eight
// elements of a row, lane 4 * row + i gets two, or one of 32 bits.
__device__ void load_matrices(unsigned (&parts)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

__device__ void load_matrices_transposed(unsigned (&parts)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

#define MMA(SHAPE, TYPE)                                                                    \
  asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 "                       \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                          \
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]))

// sums (16 x 8) += left (16 x STEP) * right (STEP x 8), each spread over the warp's lanes.
__device__ void multiply_add(float (&sums)[4], const unsigned (&left)[4],
                             const unsigned (&right)[2]) {
#if INPUT == TF32
  MMA("m16n8k8", "tf32");
#elif INPUT == BF16
  MMA("m16n8k16", "bf16");
#elif __CUDA_ARCH__ >= 800
  MMA("m16n8k16", "f16");
#else  // Turing's mma has half the extent along k
  for (int half = 0; half < 2; ++half) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[2 * half]), "r"(left[2 * half + 1]), "r"(right[half]));
  }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    tensor(const Element* M, const Element* N, float* P, int m, int k, int n) {
  __shared__ uint4 M_tile[4 * TILE];
  __shared__ __align__(16) Element N_tile[DEPTH][N_PITCH];

  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
  int warp_row = warp / WARPS_ACROSS * WARP_ROWS, warp_column = warp % WARPS_ACROSS * WARP_COLUMNS;
  bool M_aligned = k % CHUNK == 0, N_aligned = n % CHUNK == 0;

  float sums[WARP_ROWS / 16][WARP_COLUMNS / 8][4] = {};
  for (int start = 0; start < k; start += DEPTH) {
    for (int c = thread; c < 4 * TILE; c += THREADS) {
      int row = first_row + c / 4, i = start + c % 4 * CHUNK;
      M_tile[swizzled(c / 4, c % 4)] = load(M + row * k + i, row < m ? k - i : 0, M_aligned);
      int j = c / (TILE / CHUNK), column = c % (TILE / CHUNK) * CHUNK;
      *reinterpret_cast<uint4*>(&N_tile[j][column]) =
          load(N + (start + j) * n + first_column + column,
               start + j < k ? n - first_column - column : 0, N_aligned);
    }
    __syncthreads();  // the tiles are complete before they are read

    for (int step = 0; step < DEPTH / STEP; ++step) {
      unsigned right[WARP_COLUMNS / 8][2];
#if INPUT == TF32
      for (int c = 0; c < WARP_COLUMNS / 8; ++c) {
        for (int half = 0; half < 2; ++half) {
          right[c][half] = __float_as_uint(
              N_tile[STEP * step + 4 * half + lane % 4][warp_column + 8 * c + lane / 4]);
        }
      }
#else
      for (int c = 0; c < WARP_COLUMNS / 8; c += 2) {
        unsigned parts[4];  // two halves of k of two matrices
        load_matrices_transposed(
            parts, &N_tile[STEP * step + lane % 16][warp_column + 8 * (c + lane / 16)]);
        right[c][0] = parts[0], right[c][1] = parts[1];
        right[c + 1][0] = parts[2], right[c + 1][1] = parts[3];
      }
#endif
      for (int r = 0; r < WARP_ROWS / 16; ++r) {
        unsigned left[4];
        load_matrices(
            left, &M_tile[swizzled(warp_row + 16 * r + lane % 16, 2 * step + lane / 16)]);
        for (int c = 0; c < WARP_COLUMNS / 8; ++c) {
          multiply_add(sums[r][c], left, right[c]);
        }
      }
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

#pragma unroll  // sums stay in registers only if nothing indexes them at run time
  for (int r = 0; r < WARP_ROWS / 16; ++r) {
#pragma unroll
    for (int c = 0; c < WARP_COLUMNS / 8; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // a lane has two neighbors of a row, twice
        int row = first_row + warp_row + 16 * r + lane / 4 + 8 * half;
        int column = first_column + warp_column + 8 * c + lane % 4 * 2;
        float* to = P + row * n + column;
        float first = sums[r][c][2 * half], second = sums[r][c][2 * half + 1];
        if (row < m && column < n && n % 2 == 0) {
          *reinterpret_cast<float2*>(to) = make_float2(first, second);
        } else if (row < m) {
          if (column < n) to[0] = first;
          if (column + 1 < n) to[1] = second;
        }
      }
    }
  }
}
