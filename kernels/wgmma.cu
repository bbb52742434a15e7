// Step 9: a warpgroup multiplies whole tiles in shared memory (wgmma), which the copy engine fills.
//
// P (m x n) = M (m x k) * N (k x n), row-major; M and N in FP16 or BF16 (INPUT), P and all sums in
// float32. k and n are multiples of 8, because the copy engine wants rows of whole 16 bytes. A
// block is one warpgroup, four warps, and computes 64 x 256 elements of P.
// - One thread asks the copy engine for boxes of M and N by their coordinates (TMA). It computes
//   the addresses, fills in zeros outside the matrices, and swizzles the rows of 128 bytes as wgmma
//   wants them. An mbarrier tells when all bytes have arrived.
// - wgmma reads both operands from shared memory: no loads into registers, no ldmatrix. A 64 x 16
//   part of M times a 16 x 256 part of N is one instruction of four warps, of 262,144 FMAs.
//
// What to expect: far more than `tensor-bf16`, because the tensor cores fetch their operands
// themselves. But here they wait for every copy, and the copy engine for every product; only other
// blocks on the SM fill the gaps.

#include <cuda.h>

#define ROWS 64  // of P that a block computes
#define COLUMNS 256
#define DEPTH 64  // of the tiles, along k: 128 bytes
#define BOX_COLUMNS 64
#define STEP 16  // the extent of one wgmma along k
#define THREADS 128
#define N_BOX_BYTES (DEPTH * BOX_COLUMNS * 2)

struct Tiles {
  unsigned char M[ROWS * DEPTH * 2];
  unsigned char N[COLUMNS * DEPTH * 2];  // boxes of 64 columns, one behind the other
};

struct Shared {
  Tiles tiles;
  unsigned long long loaded;
};

// In hopper.cuh, below:
__device__ __forceinline__ unsigned shared_address(const void* pointer);
__device__ __forceinline__ void make_barrier(unsigned barrier, int arrivals);
__device__ __forceinline__ void publish_barriers();
__device__ __forceinline__ void arrive_expecting(unsigned barrier, unsigned bytes);
__device__ __forceinline__ void wait(unsigned barrier, unsigned parity);
__device__ __forceinline__ void load_box(unsigned to, const CUtensorMap* from, int column,
                                         int row, unsigned barrier);
__device__ __forceinline__ void begin_products();
__device__ __forceinline__ void end_products();
template <int PENDING>
__device__ __forceinline__ void wait_for_products();
__device__ __forceinline__ unsigned long long describe(unsigned address, unsigned pitch);
__device__ __forceinline__ unsigned long long advance(unsigned long long matrix, unsigned bytes);
__device__ __forceinline__ void multiply(float (&sums)[128], unsigned long long M,
                                         unsigned long long N, bool add);

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N, float* P,
          int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  unsigned M_tile = shared_address(shared.tiles.M), N_tile = shared_address(shared.tiles.N);
  unsigned loaded = shared_address(&shared.loaded);
  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
  if (thread == 0) {
    make_barrier(loaded, 1);
    publish_barriers();
  }
  __syncthreads();  // the barrier is made before it is used

  float sums[COLUMNS / 2];
  for (int start = 0; start < k; start += DEPTH) {
    if (thread == 0) {
      arrive_expecting(loaded, sizeof(Tiles));
      load_box(M_tile, &M, start, first_row, loaded);
      for (int box = 0; box < COLUMNS / BOX_COLUMNS; ++box) {
        load_box(N_tile + box * N_BOX_BYTES, &N, first_column + box * BOX_COLUMNS, start, loaded);
      }
    }
    wait(loaded, start / DEPTH % 2);

    auto M_part = describe(M_tile, 0), N_part = describe(N_tile, N_BOX_BYTES);
    begin_products();
#pragma unroll
    for (int i = 0; i < DEPTH; i += STEP) {
      multiply(sums, advance(M_part, i * 2), advance(N_part, i * BOX_COLUMNS * 2), start + i > 0);
    }
    end_products();
    wait_for_products<0>();
    __syncthreads();  // the tiles are read before they are overwritten
  }

#pragma unroll
  for (int c = 0; c < COLUMNS / 8; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // a lane has two neighbors of a row, twice
      int row = first_row + 16 * warp + lane / 4 + 8 * half;
      int column = first_column + 8 * c + lane % 4 * 2;
      if (row < m && column < n) {
        *reinterpret_cast<float2*>(P + (size_t)row * n + column) =
            make_float2(sums[4 * c + 2 * half], sums[4 * c + 2 * half + 1]);
      }
    }
  }
}
