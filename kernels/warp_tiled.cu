// Step 8: a block computes 128 x 256 elements of P, each of its warps 64 x 64, each thread 16 x 8.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. Like `double-buffered`, but:
// - A thread has 128 sums: 6 loads of 16 bytes from shared memory serve 128 FMAs; there 4 serve 64.
//   So many registers leave room for one block of 8 warps on an SM.
// - The lanes of a warp stand 4 x 8 in a square of P: they read few different words of the tiles.
// - Tiles are 16 deep, and a whole phase is unrolled: nine of ten instructions of it are FMAs.
// - cp.async copies N to shared memory without registers.
// - Blocks that run at the same time form squares of P, so that they share rows of M and columns of
//   N in the L2.
// - Fewer FMAs wait for the banks of the register file. The thread goes through its columns forth
//   and back, so that one operand of an FMA is always that of the FMA before. And the sums go one
//   by one to shared memory, where the tiles were, and from there to P in whole lines. Stores of 16
//   bytes would need groups of four neighboring registers, where the compiler could not choose the
//   banks.
//
// What to expect: the time of cuBLAS's FP32 product.

#define ROWS 128  // of P that a block computes
#define COLUMNS 256
#define DEPTH 16
#define THREADS 256
#define PER_THREAD_ROWS 16
#define PER_THREAD_COLUMNS 8
#define LANES_DOWN 4  // the lanes of a warp, in its square of P
#define LANES_ACROSS 8
#define WARP_EDGE 64
#define QUARTER_ROWS (4 * LANES_DOWN)  // of the warp's square
#define PADDING 4                      // keeps rows of the transposed M_tile aligned
#define BLOCKS_IN_SQUARE 8             // rows of blocks that run at the same time

struct Tiles {
  float M[DEPTH][ROWS + PADDING];  // transposed
  float N[DEPTH][COLUMNS];
};

// In the lower half of M_tile, groups of eight neighbors are exchanged, so that the stores of a
// warp, four columns of which are four rows there, are free of bank conflicts.
__device__ constexpr int exchanged(int d) { return d / 8 * 8; }

// Four neighbors in a row of a matrix, of which `valid` are inside it; zeros for the others.
__device__ float4 load(const float* from, int valid, bool aligned) {
  if (WHOLE_TILES || (aligned && valid >= 4)) {
    return *reinterpret_cast<const float4*>(from);
  }
  return make_float4(valid > 0 ? from[0] : 0.0f, valid > 1 ? from[1] : 0.0f,
                     valid > 2 ? from[2] : 0.0f, valid > 3 ? from[3] : 0.0f);
}

// Starts to copy these four neighbors to shared memory.
__device__ void copy(float* to, const float* from, int valid, bool aligned) {
  if (WHOLE_TILES || (aligned && valid >= 4)) {
    unsigned address = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    *reinterpret_cast<float4*>(to) = load(from, valid, aligned);
  }
}

// Four neighbors of a row of a tile for every group of four values of a thread.
template <int GROUPS, int STRIDE>
__device__ void read(float* values, const float* tile_row) {
  for (int g = 0; g < GROUPS; ++g) {
    float4 four = *reinterpret_cast<const float4*>(tile_row + g * STRIDE);
    values[4 * g] = four.x, values[4 * g + 1] = four.y;
    values[4 * g + 2] = four.z, values[4 * g + 3] = four.w;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    warp_tiled(const float* M, const float* N, float* P, int m, int k, int n) {
  extern __shared__ __align__(16) unsigned char shared[];
  Tiles* tiles = reinterpret_cast<Tiles*>(shared);  // two

  int block = blockIdx.y * gridDim.x + blockIdx.x;
  int in_band = block % (BLOCKS_IN_SQUARE * gridDim.x);
  int band = block / (BLOCKS_IN_SQUARE * gridDim.x) * BLOCKS_IN_SQUARE;
  int band_rows = min(BLOCKS_IN_SQUARE, gridDim.y - band);
  int first_row = (band + in_band % band_rows) * ROWS;
  int first_column = in_band / band_rows * COLUMNS;

  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  int warp_row = warp / (COLUMNS / WARP_EDGE) * WARP_EDGE;
  int warp_column = warp % (COLUMNS / WARP_EDGE) * WARP_EDGE;
  int down = warp_row + lane / LANES_ACROSS * 4, across = warp_column + lane % LANES_ACROSS * 4;

  bool M_aligned = k % 4 == 0, N_aligned = n % 4 == 0;
  int M_row = thread / (DEPTH / 4), M_i = thread % (DEPTH / 4) * 4;
  int N_j = thread / (COLUMNS / 4), N_column = thread % (COLUMNS / 4) * 4;
  constexpr int M_STEP = THREADS / (DEPTH / 4), M_LOADS = ROWS / M_STEP;
  constexpr int N_STEP = THREADS / (COLUMNS / 4), N_LOADS = DEPTH / N_STEP;

  const float* from_M = M + (size_t)(first_row + M_row) * k + M_i;
  const float* from_N = N + (size_t)N_j * n + first_column + N_column;
  float4 M_next[M_LOADS];
  auto fetch = [&](int start, Tiles& into) {
#pragma unroll
    for (int l = 0; l < M_LOADS; ++l) {
      int row = first_row + M_row + l * M_STEP;
      M_next[l] = load(from_M + (size_t)l * M_STEP * k + start, row < m ? k - start - M_i : 0,
                       M_aligned);
    }
#pragma unroll
    for (int l = 0; l < N_LOADS; ++l) {
      int j = N_j + l * N_STEP;
      copy(&into.N[j][N_column], from_N + (size_t)(start + l * N_STEP) * n,
           start + j < k ? n - first_column - N_column : 0, N_aligned);
    }
  };
  auto keep = [&](Tiles& into) {
#pragma unroll
    for (int l = 0; l < M_LOADS; ++l) {
      int row = M_row + l * M_STEP;
      row ^= exchanged(M_i);
      into.M[M_i][row] = M_next[l].x, into.M[M_i + 1][row] = M_next[l].y;
      into.M[M_i + 2][row] = M_next[l].z, into.M[M_i + 3][row] = M_next[l].w;
    }
  };

  float sums[PER_THREAD_ROWS][PER_THREAD_COLUMNS] = {};
  fetch(0, tiles[0]);
  keep(tiles[0]);
  int phases = (k + DEPTH - 1) / DEPTH;
  for (int phase = 0; phase < phases; ++phase) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();  // the current tiles are complete, and the others are no longer read
    const Tiles& current = tiles[phase % 2];
    Tiles& next = tiles[(phase + 1) % 2];
    bool more = phase + 1 < phases;
    if (more) {
      fetch((phase + 1) * DEPTH, next);
    }
    // The values for the next step are read before the FMAs of this one.
    float left[2][PER_THREAD_ROWS], right[2][PER_THREAD_COLUMNS];
    auto read_both = [&](int d) {
      read<PER_THREAD_ROWS / 4, 4 * LANES_DOWN>(left[d % 2], &current.M[d][down ^ exchanged(d)]);
      read<PER_THREAD_COLUMNS / 4, 4 * LANES_ACROSS>(right[d % 2], &current.N[d][across]);
    };
    read_both(0);
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      if (d + 1 < DEPTH) {
        read_both(d + 1);
      }
#pragma unroll
      for (int r = 0; r < PER_THREAD_ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < PER_THREAD_COLUMNS; ++i) {
          int c = r % 2 ? PER_THREAD_COLUMNS - 1 - i : i;  // and back
          sums[r][c] += left[d % 2][r] * right[d % 2][c];
        }
      }
    }
    if (more) {
      keep(next);
    }
  }

  // The sums reach P through shared memory, a quarter of the warp's square at a time. Elements are
  // rotated within groups of four, so that the stores of lanes above one another differ in banks.
  __syncthreads();  // the tiles are no longer read
  float* staged = reinterpret_cast<float*>(shared) + warp * QUARTER_ROWS * WARP_EDGE;
#pragma unroll
  for (int quarter = 0; quarter < WARP_EDGE / QUARTER_ROWS; ++quarter) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < PER_THREAD_COLUMNS; ++c) {
        int row = lane / LANES_ACROSS * 4 + r;
        int group = lane % LANES_ACROSS * 4 + c / 4 * 4 * LANES_ACROSS;
        staged[row * WARP_EDGE + group + (c + row / 4) % 4] = sums[4 * quarter + r][c];
      }
    }
    __syncwarp();
    int row = first_row + warp_row + quarter * QUARTER_ROWS;
    int column = first_column + warp_column + lane;
#pragma unroll
    for (int down = 0; down < QUARTER_ROWS; ++down) {
      float* to = P + (size_t)(row + down) * n + column;
      const float* from = staged + down * WARP_EDGE + lane / 4 * 4 + (lane + down / 4) % 4;
#pragma unroll
      for (int right = 0; right < WARP_EDGE; right += 32) {
        if (WHOLE_TILES || (row + down < m && column + right < n)) {
          __stcs(to + right, from[right]);  // P is not read again
        }
      }
    }
    __syncwarp();
  }
}
