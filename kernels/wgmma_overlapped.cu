// Step 15: the sums of a tile are stored while the tensor cores multiply.
//
// P (m x n) = M (m x k) * N (k x n) as in `wgmma-cluster`. There the tensor cores wait after every
// tile until its 128 KiB of sums are on their way. Here the first and the last phases of a tile
// multiply its columns in halves:
// - At the end of a tile, the left half is complete while the products of the right half run. It is
//   stored meanwhile.
// - At the start of the next tile, the products of the left half run while the right half of the
//   tile before is stored.
// - Between them products have all columns: those of half of them read M twice from shared memory.
// - The phases of every second tile go back from the end of k, where the L2 still holds rows of M
//   that the tile before has read.
//
// What to expect: the tensor cores wait less for stores, and less of M comes from DRAM.

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
#define ENDS 2     // phases at the start and at the end of a tile that multiply halves
#define CLUSTER 2  // blocks, one above the other
#define BAND 8     // rows of clusters whose columns are computed one after the other
#define PIECE_BYTES (64 * 32 * 4)  // of P, which a warpgroup stores at once
#define PIECES (COLUMNS / 2 / 32)  // of half of the columns

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
__device__ __forceinline__ void multiply(float (&sums)[64], unsigned long long M,
                                         unsigned long long N, bool add);
__device__ __forceinline__ void store_piece(const CUtensorMap* to, int row, int column,
                                            const float* sums, unsigned piece, int group);
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
    wgmma_overlapped(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N,
                  const __grid_constant__ CUtensorMap P, int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  int thread = threadIdx.x, group = uniform(thread / 128);
  int block = block_in_cluster();
  int down = (m + CLUSTER * ROWS - 1) / (CLUSTER * ROWS), across = (n + COLUMNS - 1) / COLUMNS;
  int phases = max((k + DEPTH - 1) / DEPTH, 2 * ENDS);  // those beyond k add zeros
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
    bool back = false;
    for (int tile = blockIdx.x / CLUSTER; thread == GROUPS * 128 && tile < down * across;
         tile += gridDim.x / CLUSTER, back = !back) {
      place(tile, down, across, first_row, first_column);
      for (int i = 0; i < phases; ++i) {
        int phase = back ? phases - 1 - i : i;
        Tiles& tiles = shared.stages[stage];
        unsigned loaded = shared_address(&shared.loaded[stage]);
        wait(shared_address(&shared.used[stage]), round % 2 ^ 1);  // at once in the first round
        arrive_expecting(loaded, sizeof(Tiles));
        load_box(shared_address(tiles.M), &M, phase * DEPTH, first_row + block * ROWS, loaded);
        for (int b = 0; b < N_BOXES / CLUSTER; ++b) {
          int box = block * (N_BOXES / CLUSTER) + b;
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
  float sums[COLUMNS / 2], left[COLUMNS / 4], right[COLUMNS / 4];
  unsigned pieces = shared_address(shared.pieces[group]);
  auto ahead = [&](int phases) { return (stage + phases) % STAGES; };
  auto M_in = [&](int stage) {
    return describe(shared_address(shared.stages[stage].M) + group * 64 * DEPTH * 2, 0);
  };
  auto N_in = [&](int stage, int first_box) {
    return describe(shared_address(shared.stages[stage].N) + first_box * N_BOX_BYTES, N_BOX_BYTES);
  };
  auto release = [&](int stage) {
    __syncwarp();  // all lanes have waited
    if (thread % 32 < CLUSTER) {
      arrive_at(shared_address(&shared.used[stage]), thread % 32);
    }
  };
  // The products of half of the columns in the next phases, a group for each of them.
  auto multiply_half = [&](float(&half)[COLUMNS / 4], int first_box, bool add) {
#pragma unroll
    for (int p = 0; p < ENDS; ++p) {
      if (first_box == 0) {  // the other half finds them loaded
        wait(shared_address(&shared.loaded[ahead(p)]), (round + (stage + p) / STAGES) % 2);
      }
      begin_products();
#pragma unroll
      for (int i = 0; i < DEPTH; i += STEP) {
        multiply(half, advance(M_in(ahead(p)), i * 2),
                 advance(N_in(ahead(p), first_box), i * BOX_COLUMNS * 2), add || p + i > 0);
      }
      end_products();
    }
  };
  // Waits for the products of one of those phases, and lets its stage be overwritten.
  auto finish = [&](int phase) {
    switch (ENDS - 1 - phase) {  // groups that may be incomplete
      case 0: wait_for_products<0>(); break;
      case 1: wait_for_products<1>(); break;
      default: wait_for_products<ENDS - 1>();
    }
    release(ahead(phase));
  };
  auto next_stages = [&] {
    stage += ENDS;
    round += stage / STAGES;
    stage %= STAGES;
  };
  int row, column;  // of the warpgroup's sums
  bool half_stored = false;
  auto store = [&](int piece, const float(&half)[COLUMNS / 4]) {
    store_piece(&P, row, column + 32 * piece, half + piece % PIECES * 16,
                pieces + piece % 2 * PIECE_BYTES, group);
  };
  auto store_right = [&] {
#pragma unroll
    for (int piece = PIECES; piece < 2 * PIECES; ++piece) {
      store(piece, right);
    }
  };

  for (int tile = blockIdx.x / CLUSTER; tile < down * across; tile += gridDim.x / CLUSTER) {
    multiply_half(left, 0, false);
    wait_for_products<ENDS>();  // of the tile before, which are complete
    if (half_stored) {
      store_right();
    }
    multiply_half(right, N_BOXES / 2, false);
#pragma unroll
    for (int phase = 0; phase < ENDS; ++phase) {
      finish(phase);
    }
    next_stages();

    // In the same registers: wgmma of all columns takes those of both halves.
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; ++i) {
      sums[i] = left[i], sums[COLUMNS / 4 + i] = right[i];
    }
    int previous = 0;
    for (int phase = 2 * ENDS; phase < phases; ++phase) {
      wait(shared_address(&shared.loaded[stage]), round % 2);
      begin_products();
#pragma unroll
      for (int i = 0; i < DEPTH; i += STEP) {
        multiply(sums, advance(M_in(stage), i * 2), advance(N_in(stage, 0), i * BOX_COLUMNS * 2),
                 true);
      }
      end_products();
      wait_for_products<1>();  // those of the previous phase are complete
      if (phase > 2 * ENDS) {
        release(previous);
      }
      previous = stage;
      next_stage();
    }
    wait_for_products<0>();
    if (phases > 2 * ENDS) {
      release(previous);
    }
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; ++i) {
      left[i] = sums[i], right[i] = sums[COLUMNS / 4 + i];
    }

    half_stored = true;
    multiply_half(left, 0, true);
    multiply_half(right, N_BOXES / 2, true);
    wait_for_products<ENDS>();  // the left half is complete
    place(tile, down, across, row, column);
    row += block * ROWS + 64 * group;
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      store(piece, left);
      if (piece >= PIECES - ENDS) {
        finish(piece - (PIECES - ENDS));
      }
    }
    next_stages();
  }
  if (half_stored) {
    store_right();
  }
  wait_for_reads<0>();  // shared memory outlives the copies from it
  wait_for_cluster();
}
