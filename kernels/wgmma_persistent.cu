// Step 12: as many blocks as SMs, each of which computes one tile of P after another.
//
// P (m x n) = M (m x k) * N (k x n) as in `wgmma-specialized`. n is a multiple of 8.
// - The loading warpgroup goes on with the next tile while the others still store the last one, and
//   no tile but the first waits for the start of a block.
// - Tiles that run at the same time form squares of P: they share rows of M and columns of N in the
//   L2.
// - Sums leave through shared memory, from which the copy engine writes whole lines of P. Direct
//   stores of a warp would touch eight lines each, 32 bytes of every one.
//
// What to expect: the time between the products of one tile and those of the next shrinks, and less
// of M and N comes from DRAM.

#include <cuda.h>

#define ROWS 128  // of a tile of P, 64 for each warpgroup that multiplies
#define COLUMNS 256
#define DEPTH 64  // of the tiles of M and N, along k: 128 bytes
#define BOX_COLUMNS 64
#define STEP 16  // the extent of one wgmma along k
#define STAGES 4
#define GROUPS 2  // warpgroups that multiply; one more loads
#define THREADS (128 * (GROUPS + 1))
#define LOADER_REGISTERS 40
#define SUM_REGISTERS 232
#define N_BOX_BYTES (DEPTH * BOX_COLUMNS * 2)
#define BAND 16  // rows of tiles whose columns are computed one after the other
#define PIECE_BYTES (64 * 32 * 4)  // of P, which a warpgroup stores at once

struct Tiles {
  unsigned char M[ROWS * DEPTH * 2];
  unsigned char N[COLUMNS * DEPTH * 2];  // boxes of 64 columns, one behind the other
};

struct Shared {
  Tiles stages[STAGES];
  unsigned char pieces[GROUPS][2][PIECE_BYTES];
  unsigned long long loaded[STAGES], used[STAGES];
};

// In hopper.cuh, below:
__device__ __forceinline__ unsigned shared_address(const void* pointer);
__device__ __forceinline__ int uniform(int value);
__device__ __forceinline__ void make_barrier(unsigned barrier, int arrivals);
__device__ __forceinline__ void publish_barriers();
__device__ __forceinline__ void arrive(unsigned barrier);
__device__ __forceinline__ void arrive_expecting(unsigned barrier, unsigned bytes);
__device__ __forceinline__ void wait(unsigned barrier, unsigned parity);
__device__ __forceinline__ void load_box(unsigned to, const CUtensorMap* from, int column,
                                         int row, unsigned barrier);
template <int PENDING>
__device__ __forceinline__ void wait_for_reads();
__device__ __forceinline__ void begin_products();
__device__ __forceinline__ void end_products();
template <int PENDING>
__device__ __forceinline__ void wait_for_products();
__device__ __forceinline__ unsigned long long describe(unsigned address, unsigned pitch);
__device__ __forceinline__ unsigned long long advance(unsigned long long matrix, unsigned bytes);
__device__ __forceinline__ void multiply(float (&sums)[128], unsigned long long M,
                                         unsigned long long N, bool add);
template <int COUNT>
__device__ __forceinline__ void store_sums(const CUtensorMap* to, int first_row, int first_column,
                                           const float (&sums)[COUNT], unsigned pieces,
                                           int group);
template <int REGISTERS>
__device__ __forceinline__ void give_registers();
template <int REGISTERS>
__device__ __forceinline__ void take_registers();

// The position of a tile of P in the order of computation.
__device__ void place(int tile, int down, int across, int& first_row, int& first_column) {
  int band = tile / (BAND * across) * BAND, in_band = tile % (BAND * across);
  int rows = min(BAND, down - band);
  first_row = (band + in_band % rows) * ROWS;
  first_column = in_band / rows * COLUMNS;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wgmma_persistent(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N,
                     const __grid_constant__ CUtensorMap P, int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  int thread = threadIdx.x, group = uniform(thread / 128);
  int down = (m + ROWS - 1) / ROWS, across = (n + COLUMNS - 1) / COLUMNS;
  int phases = (k + DEPTH - 1) / DEPTH;
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      make_barrier(shared_address(&shared.loaded[stage]), 1);
      make_barrier(shared_address(&shared.used[stage]), 4 * GROUPS);  // warps
    }
    publish_barriers();
  }
  __syncthreads();  // the barriers are made before they are used

  int stage = 0, round = 0, first_row, first_column;  // of the ring; of the tile
  auto next_stage = [&] {
    if (++stage == STAGES) {
      stage = 0, ++round;
    }
  };
  if (group == GROUPS) {
    give_registers<LOADER_REGISTERS>();
    for (int tile = blockIdx.x; thread == GROUPS * 128 && tile < down * across; tile += gridDim.x) {
      place(tile, down, across, first_row, first_column);
      for (int phase = 0; phase < phases; ++phase) {
        Tiles& tiles = shared.stages[stage];
        unsigned loaded = shared_address(&shared.loaded[stage]);
        wait(shared_address(&shared.used[stage]), round % 2 ^ 1);  // at once in the first round
        arrive_expecting(loaded, sizeof(Tiles));
        load_box(shared_address(tiles.M), &M, phase * DEPTH, first_row, loaded);
        for (int box = 0; box < COLUMNS / BOX_COLUMNS; ++box) {
          load_box(shared_address(tiles.N) + box * N_BOX_BYTES, &N,
                   first_column + box * BOX_COLUMNS, phase * DEPTH, loaded);
        }
        next_stage();
      }
    }
    return;
  }

  take_registers<SUM_REGISTERS>();
  float sums[COLUMNS / 2];
  for (int tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
    place(tile, down, across, first_row, first_column);
    int previous = 0;
    for (int phase = 0; phase < phases; ++phase) {
      wait(shared_address(&shared.loaded[stage]), round % 2);
      auto M_part = describe(shared_address(shared.stages[stage].M) + group * 64 * DEPTH * 2, 0);
      auto N_part = describe(shared_address(shared.stages[stage].N), N_BOX_BYTES);

      begin_products();
#pragma unroll
      for (int i = 0; i < DEPTH; i += STEP) {
        multiply(sums, advance(M_part, i * 2), advance(N_part, i * BOX_COLUMNS * 2), phase + i > 0);
      }
      end_products();
      wait_for_products<1>();  // those of the previous phase are complete
      __syncwarp();  // all lanes have waited
      if (thread % 32 == 0 && phase > 0) {
        arrive(shared_address(&shared.used[previous]));
      }
      previous = stage;
      next_stage();
    }
    wait_for_products<0>();
    __syncwarp();  // all lanes have waited
    if (thread % 32 == 0) {
      arrive(shared_address(&shared.used[previous]));
    }
    store_sums(&P, first_row + 64 * group, first_column, sums,
               shared_address(shared.pieces[group]), group);
  }
  wait_for_reads<0>();  // shared memory outlives the copies from it
}
