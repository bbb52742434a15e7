// Step 6: every thread reads and writes memory 16 bytes at a time.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. Like `register-tiled-2d`, but a
// thread's rows and columns come in groups of four neighbors, and M_tile is stored transposed so
// that four neighbors in a column of M are consecutive too. Rows whose length is not a multiple of
// 4 are not aligned to 16 bytes; global memory is then read and written word by word.
//
// What to expect: the same bytes in a quarter of the memory instructions: LDG.128, STG.128 and
// LDS.128. This frees issue slots for FMAs; the wavefronts in shared memory stay the same.

#define DEPTH 8
#define GROUPS (PER_THREAD / 4)  // groups of four rows or columns per thread
#define THREADS_ACROSS (TILE / PER_THREAD)
#define THREADS (THREADS_ACROSS * THREADS_ACROSS)
#define PADDING 4  // keeps the stores that transpose M free of bank conflicts, and rows aligned

// Four neighbors in a row of a matrix, of which `valid` are inside it; zeros for the others.
__device__ float4 load(const float* from, int valid, bool aligned) {
  if (aligned && valid >= 4) {
    return *reinterpret_cast<const float4*>(from);
  }
  return make_float4(valid > 0 ? from[0] : 0.0f, valid > 1 ? from[1] : 0.0f,
                     valid > 2 ? from[2] : 0.0f, valid > 3 ? from[3] : 0.0f);
}

__device__ void store(float* to, const float* values, int valid, bool aligned) {
  if (aligned && valid >= 4) {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
    return;
  }
  for (int c = 0; c < 4; ++c) {
    if (c < valid) {
      to[c] = values[c];
    }
  }
}

// The four values of each of a thread's groups, from one row of a tile.
__device__ void read(float* values, const float* tile_row, int place) {
  for (int g = 0; g < GROUPS; ++g) {
    float4 four = *reinterpret_cast<const float4*>(tile_row + g * 4 * THREADS_ACROSS + 4 * place);
    values[4 * g] = four.x, values[4 * g + 1] = four.y;
    values[4 * g + 2] = four.z, values[4 * g + 3] = four.w;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    vectorized(const float* M, const float* N, float* P, int m, int k, int n) {
  __shared__ __align__(16) float M_tile[DEPTH][TILE + PADDING], N_tile[DEPTH][TILE];

  int thread = threadIdx.x;
  int tx = thread % THREADS_ACROSS, ty = thread / THREADS_ACROSS;
  int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
  bool M_aligned = k % 4 == 0, N_aligned = n % 4 == 0;

  float sums[PER_THREAD][PER_THREAD] = {};
  for (int start = 0; start < k; start += DEPTH) {
    for (int e = 4 * thread; e < TILE * DEPTH; e += 4 * THREADS) {
      int row = e / DEPTH, i = e % DEPTH;
      float4 four = load(M + (first_row + row) * k + start + i,
                         first_row + row < m ? k - start - i : 0, M_aligned);
      M_tile[i][row] = four.x, M_tile[i + 1][row] = four.y;
      M_tile[i + 2][row] = four.z, M_tile[i + 3][row] = four.w;
      int j = e / TILE, column = e % TILE;
      *reinterpret_cast<float4*>(&N_tile[j][column]) =
          load(N + (start + j) * n + first_column + column,
               start + j < k ? n - first_column - column : 0, N_aligned);
    }
    __syncthreads();  // the tiles are complete before they are read

    for (int d = 0; d < DEPTH; ++d) {
      float left[PER_THREAD], right[PER_THREAD];
      read(left, M_tile[d], ty);
      read(right, N_tile[d], tx);
      for (int r = 0; r < PER_THREAD; ++r) {
        for (int c = 0; c < PER_THREAD; ++c) {
          sums[r][c] += left[r] * right[c];
        }
      }
    }
    __syncthreads();  // the tiles are read before they are overwritten
  }

  for (int r = 0; r < PER_THREAD; ++r) {
    int row = first_row + r / 4 * 4 * THREADS_ACROSS + 4 * ty + r % 4;
    for (int g = 0; g < GROUPS; ++g) {
      int column = first_column + g * 4 * THREADS_ACROSS + 4 * tx;
      store(P + row * n + column, &sums[r][4 * g], row < m ? n - column : 0, N_aligned);
    }
  }
}
