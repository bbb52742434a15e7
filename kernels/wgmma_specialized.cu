// Step 11: one warpgroup loads, two multiply; nobody waits for everybody.
//
// P (m x n) = M (m x k) * N (k x n) as in `wgmma-pipelined`, with the same tiles and stages. A
// third warpgroup, of which one thread works, asks for the copies. Each stage has two barriers:
// `loaded` is complete when its bytes have arrived, `used` when both warpgroups have multiplied
// them. Neither warpgroup waits for the other, and none of their warps for the copies of a later
// stage. The loading warpgroup gives most of its registers to the others (setmaxnreg).
//
// What to expect: no barriers of the whole block in the loop. The products of a warpgroup fill the
// gaps of the other's.

#include <cuda.h>

#define ROWS 128  // of P that a block computes, 64 for each warpgroup that multiplies
#define COLUMNS 256
#define DEPTH 64  // of the tiles, along k: 128 bytes
#define BOX_COLUMNS 64
#define STEP 16  // the extent of one wgmma along k
#define STAGES 4
#define GROUPS 2  // warpgroups that multiply; one more loads
#define THREADS (128 * (GROUPS + 1))
#define LOADER_REGISTERS 40
#define SUM_REGISTERS 232
#define N_BOX_BYTES (DEPTH * BOX_COLUMNS * 2)

struct Tiles {
  unsigned char M[ROWS * DEPTH * 2];
  unsigned char N[COLUMNS * DEPTH * 2];  // boxes of 64 columns, one behind the other
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
__device__ __forceinline__ void arrive(unsigned barrier);
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
template <int REGISTERS>
__device__ __forceinline__ void give_registers();
template <int REGISTERS>
__device__ __forceinline__ void take_registers();

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wgmma_specialized(const __grid_constant__ CUtensorMap M, const __grid_constant__ CUtensorMap N,
                      float* P, int m, int k, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = uniform(thread / 128);
  int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
  int phases = (k + DEPTH - 1) / DEPTH;
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      make_barrier(shared_address(&shared.loaded[stage]), 1);
      make_barrier(shared_address(&shared.used[stage]), 4 * GROUPS);  // warps
    }
    publish_barriers();
  }
  __syncthreads();  // the barriers are made before they are used

  if (group == GROUPS) {
    give_registers<LOADER_REGISTERS>();
    if (thread == GROUPS * 128) {
      for (int phase = 0; phase < phases; ++phase) {
        int stage = phase % STAGES;
        Tiles& tiles = shared.stages[stage];
        unsigned loaded = shared_address(&shared.loaded[stage]);
        wait(shared_address(&shared.used[stage]), phase / STAGES % 2 ^ 1);  // at once at first
        arrive_expecting(loaded, sizeof(Tiles));
        load_box(shared_address(tiles.M), &M, phase * DEPTH, first_row, loaded);
        for (int box = 0; box < COLUMNS / BOX_COLUMNS; ++box) {
          load_box(shared_address(tiles.N) + box * N_BOX_BYTES, &N,
                   first_column + box * BOX_COLUMNS, phase * DEPTH, loaded);
        }
      }
    }
    return;
  }

  take_registers<SUM_REGISTERS>();
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
    __syncwarp();  // all lanes have waited
    if (thread % 32 == 0 && phase > 0) {
      arrive(shared_address(&shared.used[(phase - 1) % STAGES]));
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
