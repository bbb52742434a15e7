// Step 10: the copy engine works ahead, in a ring of four pairs of tiles.
//
// P (m x n) = M (m x k) * N (k x n) as in `wgmma`. Two warpgroups compute 128 x 256 elements of P,
// each 64 rows, so that they share the tile of N: a byte of a tile serves twice the FMAs. While
// they multiply one pair of tiles, the next are on their way into the other stages of the ring.
// Products run one stage behind: a stage is refilled when the products of the next one have been
// queued, so the tensor cores have work while the warps meet at the barrier.
//
// What to expect: the time of the products or that of the copies, whichever is longer, instead of
// their sum.

#include <cuda.h>

#define ROWS 128  // of P that a block computes, 64 for each warpgroup
#define COLUMNS 256
#define DEPTH 64  // of the tiles, along k: 128 bytes
#define BOX_COLUMNS 64
#define STEP 16  // the extent of one wgmma along k
#define STAGES 4
#define THREADS 256
#define N_BOX_BYTES (DEPTH * BOX_COLUMNS * 2)

struct Tiles {
  unsigned char M[ROWS * DEPTH * 2];
  unsigned char N[COLUMNS * DEPTH * 2];  // boxes of 64 columns, one behind the other
};

struct Shared {
  Tiles stages[STAGES];
  unsigned long long loaded[STAGES];
};

// In hopper.cuh, below:
__device__ __forceinline__ unsigned shared_address(const void* pointer);
__device__ __forceinline__ int uniform(int value);
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wgmma_pipelined(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N,
                    float* P, int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = uniform(thread / 128);
  int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
  int phases = (k + DEPTH - 1) / DEPTH;
  auto load = [&](int phase) {
    Tiles& tiles = shared.stages[phase % STAGES];
    unsigned loaded = shared_address(&shared.loaded[phase % STAGES]);
    arrive_expecting(loaded, sizeof(Tiles));
    load_box(shared_address(tiles.M), &M, phase * DEPTH, first_row, loaded);
    for (int box = 0; box < COLUMNS / BOX_COLUMNS; ++box) {
      load_box(shared_address(tiles.N) + box * N_BOX_BYTES, &N, first_column + box * BOX_COLUMNS,
               phase * DEPTH, loaded);
    }
  };
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      make_barrier(shared_address(&shared.loaded[stage]), 1);
    }
    publish_barriers();
    for (int phase = 0; phase < STAGES && phase < phases; ++phase) {
      load(phase);
    }
  }
  __syncthreads();  // the barriers are made before they are used

  float sums[COLUMNS / 2];
  for (int phase = 0; phase < phases; ++phase) {
    int stage = phase % STAGES;
    wait(shared_address(&shared.loaded[stage]), phase / STAGES % 2);
    auto M_part = describe(shared_address(shared.stages[stage].M) + group * 64 * DEPTH * 2, 0);
    auto N_part = describe(shared_address(shared.stages[stage].N), N_BOX_BYTES);

    begin_products();
#pragma unroll
    for (int i = 0; i < DEPTH; i += STEP) {
      multiply(sums, advance(M_part, i * 2), advance(N_part, i * BOX_COLUMNS * 2), phase + i > 0);
    }
    end_products();
    wait_for_products<1>();  // those of the previous phase are complete
    __syncthreads();         // in both warpgroups
    if (thread == 0 && phase > 0 && phase - 1 + STAGES < phases) {
      load(phase - 1 + STAGES);
    }
  }
  wait_for_products<0>();

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
