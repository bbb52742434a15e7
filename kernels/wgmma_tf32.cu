// Step 15: the same in TF32, which wgmma multiplies only where rows run along k.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major; k and n are multiples of 4. The copy
// engine rounds M and N to TF32's 10 bits of fraction (the type of their tensor maps). Like
// `wgmma-cluster`, with three differences:
// - In shared memory, wgmma takes 32-bit elements only with k along the rows. M has it there, N has
//   not. So the kernel computes columns of P: the left operand is N transposed, which goes through
//   registers, and the right one is M. A warpgroup computes 64 columns of 256 rows.
// - Lanes read N_tile without bank conflicts. Which column of P is which row of the product is
//   free, so each lane's two rows are neighboring columns, read at once, and the 16 columns of a
//   warp are four pieces of 16 bytes that the swizzle leaves in different banks.
// - Sums are stored directly: eight lanes have 64 bytes of a row of P, in whole sectors.
//
// What to expect: half the rate of BF16. The next part of N is read while the tensor cores
// multiply.

#include <cuda.h>

#define ROWS 256  // of a tile of P
#define COLUMNS 128  // 64 for each warpgroup that multiplies
#define DEPTH 32  // of the tiles of M and N, along k: 128 bytes
#define BOX_COLUMNS 32
#define STEP 8  // the extent of one wgmma along k
#define STEPS (DEPTH / STEP)
#define STAGES 4
#define GROUPS 2  // warpgroups that multiply; one more loads
#define THREADS (128 * (GROUPS + 1))
#define LOADER_REGISTERS 40
#define SUM_REGISTERS 232
#define CLUSTER 2  // blocks, side by side
#define N_BOX_BYTES (DEPTH * BOX_COLUMNS * 4)
#define BAND 8  // rows of tiles whose columns are computed one after the other

struct Tiles {
  unsigned char M[ROWS * DEPTH * 4];
  unsigned char N[COLUMNS * DEPTH * 4];  // boxes of 32 columns, one behind the other
};

struct Shared {
  Tiles stages[STAGES];
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
__device__ __forceinline__ void begin_products();
__device__ __forceinline__ void end_products();
template <int PENDING>
__device__ __forceinline__ void wait_for_products();
template <int REGISTERS>
__device__ __forceinline__ void give_registers();
template <int REGISTERS>
__device__ __forceinline__ void take_registers();
__device__ __forceinline__ unsigned long long describe(unsigned address, unsigned pitch);
__device__ __forceinline__ unsigned long long advance(unsigned long long matrix, unsigned bytes);
__device__ __forceinline__ void multiply_tf32(float (&sums)[128], const unsigned (&left)[4],
                                              unsigned long long right, bool add);

// The position of a cluster's tiles of P in the order of computation.
__device__ void place(int tile, int down, int across, int& first_row, int& first_column) {
  int band = tile / (BAND * across) * BAND, in_band = tile % (BAND * across);
  int rows = min(BAND, down - band);
  first_row = (band + in_band % rows) * ROWS;
  first_column = in_band / rows * CLUSTER * COLUMNS;
}

// Two neighbors of a row of N_tile.
__device__ __forceinline__ void read_two(unsigned& first, unsigned& second, unsigned from) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "r"(from)
               : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER)
    wgmma_tf32(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N,
               float* P, int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  int thread = threadIdx.x, group = uniform(thread / 128);
  int block = block_in_cluster();
  int down = (m + ROWS - 1) / ROWS, across = (n + CLUSTER * COLUMNS - 1) / (CLUSTER * COLUMNS);
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
        constexpr int SHARE = ROWS / CLUSTER;
        load_box_to((1 << CLUSTER) - 1, shared_address(tiles.M) + block * SHARE * DEPTH * 4, &M,
                    phase * DEPTH, first_row + block * SHARE, loaded);
        for (int box = 0; box < COLUMNS / BOX_COLUMNS; ++box) {
          load_box(shared_address(tiles.N) + box * N_BOX_BYTES, &N,
                   first_column + block * COLUMNS + box * BOX_COLUMNS, phase * DEPTH, loaded);
        }
        next_stage();
      }
    }
    __syncwarp();
    wait_for_cluster();  // this block's shared memory outlives the arrivals of the other
    return;
  }

  take_registers<SUM_REGISTERS>();
  // A warp has half the columns of a box: in a row of it, pieces 0, 1, 4 and 5 or 2, 3, 6 and 7 of
  // four columns. A lane has two columns of one piece, in rows that are lane % 4 and 4 below it of
  // every eight; the swizzle exchanges pieces by the row.
  int lane = thread % 32, warp = thread / 32 % 4;
  int along_k = lane % 4, piece = lane / 8 % 2 * 4 + warp % 2 * 2 + lane / 16, half = lane / 4 % 2;
  int box = 2 * group + warp / 2;
  int from = box * N_BOX_BYTES + along_k * 128 + half * 8;
  int upper = (piece ^ along_k) * 16, lower = (piece ^ along_k ^ 4) * 16 + 4 * 128;
  int column_in_tile = box * BOX_COLUMNS + 4 * piece + 2 * half;

  float sums[ROWS / 2];
  unsigned parts[2][STEPS][4];  // of N, for this phase and the next
  auto read = [&](unsigned (&part)[STEPS][4]) {
    wait(shared_address(&shared.loaded[stage]), round % 2);
    unsigned N_tile = shared_address(shared.stages[stage].N) + from;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      read_two(part[i][0], part[i][1], N_tile + i * STEP * 128 + upper);
      read_two(part[i][2], part[i][3], N_tile + i * STEP * 128 + lower);
    }
  };
  int previous = 0;
  auto multiply = [&](unsigned (&part)[STEPS][4], int phase) {
    auto M_part = describe(shared_address(shared.stages[stage].M), 0);
    begin_products();
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      multiply_tf32(sums, part[i], advance(M_part, i * STEP * 4), phase + i > 0);
    }
    end_products();
    wait_for_products<1>();  // those of the previous phase are complete
    __syncwarp();  // all lanes have waited
    if (thread % 32 < CLUSTER && phase > 0) {
      arrive_at(shared_address(&shared.used[previous]), thread % 32);
    }
    previous = stage;
    next_stage();
  };
  for (int tile = blockIdx.x / CLUSTER; tile < down * across; tile += gridDim.x / CLUSTER) {
    place(tile, down, across, first_row, first_column);
    read(parts[0]);
    for (int phase = 0; phase < phases; phase += 2) {  // so that indices of `parts` are constant
      multiply(parts[0], phase);
      if (phase + 1 == phases) break;
      read(parts[1]);
      multiply(parts[1], phase + 1);
      if (phase + 2 == phases) break;
      read(parts[0]);
    }
    wait_for_products<0>();
    __syncwarp();  // all lanes have waited
    if (thread % 32 < CLUSTER) {
      arrive_at(shared_address(&shared.used[previous]), thread % 32);
    }

    int column = first_column + block * COLUMNS + column_in_tile;
#pragma unroll
    for (int c = 0; c < ROWS / 8; ++c) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {  // a lane has two neighbors of a column, twice
        int row = first_row + 8 * c + lane % 4 * 2 + next;
        if (row < m && column < n) {
          __stcs(reinterpret_cast<float2*>(P + (size_t)row * n + column),
                 make_float2(sums[4 * c + next], sums[4 * c + 2 + next]));
        }
      }
    }
  }
  wait_for_cluster();
}
