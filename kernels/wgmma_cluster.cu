// Step 13: two SMs share a tile of N.
//
// P (m x n) = M (m x k) * N (k x n) as in `wgmma-persistent`. The blocks of a cluster of two
// compute tiles of P above one another, with the same columns of N. Each loads its own rows of M,
// and half of the tile of N for both: the copy engine writes it to the shared memory of both SMs
// (multicast). A stage may be overwritten when the warpgroups of both blocks have used it, so each
// of them arrives at the barriers of both.
//
// What to expect: a third less traffic between the L2 and the SMs. Where power limits the clock, as
// in large products, that saves energy.

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
#define N_BOXES (COLUMNS / BOX_COLUMNS)
#define N_BOX_BYTES (DEPTH * BOX_COLUMNS * 2)
#define CLUSTER 2  // blocks, one above the other
#define BAND 8     // rows of clusters whose columns are computed one after the other
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
__device__ __forceinline__ unsigned block_in_cluster();
__device__ __forceinline__ void wait_for_cluster();
__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned block);
__device__ __forceinline__ void arrive_expecting(unsigned barrier, unsigned bytes);
__device__ __forceinline__ void wait(unsigned barrier, unsigned parity);
__device__ __forceinline__ void load_box(unsigned to, const CUtensorMap* from, int column,
                                         int row, unsigned barrier);
__device__ __forceinline__ void load_box_to(unsigned blocks, unsigned to, const CUtensorMap* from,
                                            int column, int row, unsigned barrier);
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

// The position of a cluster's tiles of P in the order of computation.
__device__ void place(int tile, int down, int across, int& first_row, int& first_column) {
  int band = tile / (BAND * across) * BAND, in_band = tile % (BAND * across);
  int rows = min(BAND, down - band);
  first_row = (band + in_band % rows) * CLUSTER * ROWS;
  first_column = in_band / rows * COLUMNS;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER)
    wgmma_cluster(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N,
                  const __grid_constant__ CUtensorMap P, int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  int thread = threadIdx.x, group = uniform(thread / 128);
  int block = block_in_cluster();
  int down = (m + CLUSTER * ROWS - 1) / (CLUSTER * ROWS), across = (n + COLUMNS - 1) / COLUMNS;
  int phases = (k + DEPTH - 1) / DEPTH;
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      make_barrier(shared_address(&shared.loaded[stage]), 1);
      make_barrier(shared_address(&shared.used[stage]), CLUSTER * 4 * GROUPS);
    }
    publish_barriers();
  }
  wait_for_cluster();  // the barriers of both blocks are made before they are used

  int stage = 0, round = 0, first_row, first_column;  // of the ring; of the tile
  auto next_stage = [&] {
    if (++stage == STAGES) {
      stage = 0, ++round;
    }
  };
  if (group == GROUPS) {
    give_registers<LOADER_REGISTERS>();
    for (int tile = blockIdx.x / CLUSTER; thread == GROUPS * 128 && tile < down * across;
         tile += gridDim.x / CLUSTER) {
      place(tile, down, across, first_row, first_column);
      for (int phase = 0; phase < phases; ++phase) {
        Tiles& tiles = shared.stages[stage];
        unsigned loaded = shared_address(&shared.loaded[stage]);
        wait(shared_address(&shared.used[stage]), round % 2 ^ 1);  // at once in the first round
        arrive_expecting(loaded, sizeof(Tiles));
        load_box(shared_address(tiles.M), &M, phase * DEPTH, first_row + block * ROWS, loaded);
        for (int i = 0; i < N_BOXES / CLUSTER; ++i) {
          int box = block * (N_BOXES / CLUSTER) + i;
          load_box_to((1 << CLUSTER) - 1, shared_address(tiles.N) + box * N_BOX_BYTES, &N,
                      first_column + box * BOX_COLUMNS, phase * DEPTH, loaded);
        }
        next_stage();
      }
    }
    __syncwarp();
    wait_for_cluster();  // this block's shared memory outlives the arrivals of the other
    return;
  }

  take_registers<SUM_REGISTERS>();
  float sums[COLUMNS / 2];
  for (int tile = blockIdx.x / CLUSTER; tile < down * across; tile += gridDim.x / CLUSTER) {
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
      if (thread % 32 < CLUSTER && phase > 0) {
        arrive_at(shared_address(&shared.used[previous]), thread % 32);
      }
      previous = stage;
      next_stage();
    }
    wait_for_products<0>();
    __syncwarp();  // all lanes have waited
    if (thread % 32 < CLUSTER) {
      arrive_at(shared_address(&shared.used[previous]), thread % 32);
    }
    store_sums(&P, first_row + block * ROWS + 64 * group, first_column, sums,
               shared_address(shared.pieces[group]), group);
  }
  wait_for_reads<0>();  // shared memory outlives the copies from it
  wait_for_cluster();
}
