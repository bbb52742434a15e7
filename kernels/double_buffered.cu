// Step 7: the next tiles are loaded while the FMAs use the current tiles.
//
// P (m x n) = M (m x k) * N (k x n), float32, row-major, any sizes. Like `vectorized`, with two
// buffers per tile: a thread starts its global loads for the next phase before the inner product
// and stores the loaded values into the other buffer after it. One barrier per phase is
// sufficient.
//
// What to expect: the same traffic and the same FLOPs as `vectorized`. The inner product hides the
// latency of global memory, instead of other warps, of which a kernel with so many registers has
// few; the tiles take twice the shared memory.

#define DEPTH 8
#define GROUPS (PER_THREAD / 4)  // groups of four rows or columns per thread
#define THREADS_ACROSS (TILE / PER_THREAD)
#define THREADS (THREADS_ACROSS * THREADS_ACROSS)
#define FOURS (TILE * DEPTH / 4)                 // groups of four in a tile
#define LOADS ((FOURS + THREADS - 1) / THREADS)  // and groups per thread
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
    double_buffered(const float* M, const float* N, float* P, int m, int k, int n) {
  __shared__ __align__(16) float M_tile[2][DEPTH][TILE + PADDING], N_tile[2][DEPTH][TILE];

  int thread = threadIdx.x;
  int tx = thread % THREADS_ACROSS, ty = thread / THREADS_ACROSS;
  int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
  bool M_aligned = k % 4 == 0, N_aligned = n % 4 == 0;

  float4 M_next[LOADS], N_next[LOADS];
  auto fetch = [&](int start) {
    for (int l = 0; l < LOADS; ++l) {
      int e = 4 * (thread + l * THREADS);
      int row = first_row + e / DEPTH, i = start + e % DEPTH;
      M_next[l] = load(M + row * k + i, row < m ? k - i : 0, M_aligned);
      int j = start + e / TILE, column = first_column + e % TILE;
      N_next[l] = load(N + j * n + column, j < k ? n - column : 0, N_aligned);
    }
  };
  auto keep = [&](int copy) {
    for (int l = 0; l < LOADS; ++l) {
      int e = 4 * (thread + l * THREADS);
      if (FOURS % THREADS != 0 && e >= TILE * DEPTH) {
        break;
      }
      int row = e / DEPTH, i = e % DEPTH;
      M_tile[copy][i][row] = M_next[l].x, M_tile[copy][i + 1][row] = M_next[l].y;
      M_tile[copy][i + 2][row] = M_next[l].z, M_tile[copy][i + 3][row] = M_next[l].w;
      *reinterpret_cast<float4*>(&N_tile[copy][e / TILE][e % TILE]) = N_next[l];
    }
  };

  float sums[PER_THREAD][PER_THREAD] = {};
  fetch(0);
  keep(0);
  __syncthreads();
  for (int start = 0, copy = 0; start < k; start += DEPTH, copy ^= 1) {
    bool more = start + DEPTH < k;
    if (more) {
      fetch(start + DEPTH);
    }
    for (int d = 0; d < DEPTH; ++d) {
      float left[PER_THREAD], right[PER_THREAD];
      read(left, M_tile[copy][d], ty);
      read(right, N_tile[copy][d], tx);
      for (int r = 0; r < PER_THREAD; ++r) {
        for (int c = 0; c < PER_THREAD; ++c) {
          sums[r][c] += left[r] * right[c];
        }
      }
    }
    if (more) {
      keep(copy ^ 1);
    }
    __syncthreads();  // the other buffer is complete, and this one is no longer read
  }

  for (int r = 0; r < PER_THREAD; ++r) {
    int row = first_row + r / 4 * 4 * THREADS_ACROSS + 4 * ty + r % 4;
    for (int g = 0; g < GROUPS; ++g) {
      int column = first_column + g * 4 * THREADS_ACROSS + 4 * tx;
      store(P + row * n + column, &sums[r][4 * g], row < m ? n - column : 0, N_aligned);
    }
  }
}
