// Graphs and sparse matrices, sorting and scans, tables, strings and dynamic programming.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

// A step of PageRank by pull: a tile of eight threads per vertex.
extern "C" __global__ void pagerank_pull(const int* __restrict__ row, const int* __restrict__ col,
                                         const int* __restrict__ out_degree,
                                         const float* __restrict__ rank, float* next, int n,
                                         float damping) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int v = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
  if (v >= n) return;
  float sum = 0.0f;
  for (int e = row[v] + tile.thread_rank(); e < row[v + 1]; e += tile.size()) {
    int u = col[e];
    sum += __ldg(&rank[u]) / __ldg(&out_degree[u]);
  }
  sum = cg::reduce(tile, sum, cg::plus<float>());
  if (tile.thread_rank() == 0) next[v] = (1.0f - damping) / n + damping * sum;
}

// Triangles of a graph whose edges lead upwards: a thread per edge intersects two sorted lists.
extern "C" __global__ void count_triangles(const int* __restrict__ row, const int* __restrict__ col,
                                           const int* __restrict__ source,
                                           unsigned long long* total, int edges) {
  unsigned count = 0;
  for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < edges; e += gridDim.x * blockDim.x) {
    int u = source[e], v = col[e];
    int i = row[u], i_end = row[u + 1], j = row[v], j_end = row[v + 1];
    while (i < i_end && j < j_end) {
      int a = col[i], b = col[j];
      if (a == b) {
        ++count;
        ++i;
        ++j;
      } else if (a < b) {
        ++i;
      } else {
        ++j;
      }
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) count += __shfl_down_sync(~0u, count, offset);
  if (threadIdx.x % 32 == 0 && count) atomicAdd(total, (unsigned long long)count);
}

// A level of a breadth-first search with a queue: a warp per vertex of the queue.
extern "C" __global__ void bfs_queue(const int* row, const int* col, int* level, const int* queue,
                                     int* next_queue, int* next_size, int size, int now) {
  int w = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
  if (w >= size) return;
  int u = queue[w], end = row[u + 1];
  for (int base = row[u]; base < end; base += 32) {
    int e = base + lane, v = -1;
    bool found = false;
    if (e < end) {
      v = col[e];
      found = level[v] == -1 && atomicCAS(&level[v], -1, now + 1) == -1;
    }
    unsigned votes = __ballot_sync(~0u, found);
    int first = 0;
    if (lane == 0 && votes) first = atomicAdd(next_size, __popc(votes));
    first = __shfl_sync(~0u, first, 0);
    if (found) next_queue[first + __popc(votes & ((1u << lane) - 1))] = v;
  }
}

__device__ __forceinline__ unsigned hash32(unsigned x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// A step of colouring: a vertex whose hash is largest or smallest among uncoloured neighbours.
extern "C" __global__ void color_step(int n, int c, const int* row, const int* col,
                                      const int* colors, int* out) {
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) {
    int own = colors[i];
    if (own == -1) {
      bool f_max = true, f_min = true;
      unsigned r = hash32(i);
      for (int k = row[i]; k < row[i + 1] && (f_max || f_min); k++) {
        int j = col[k];
        if (i == j) continue;
        int cj = colors[j];
        if (cj != -1) continue;
        unsigned s = hash32(j);
        if (r <= s) f_max = false;
        if (r >= s) f_min = false;
      }
      if (f_max) own = c;
      else if (f_min) own = c + 1;
    }
    out[i] = own;
  }
}

// A round of Bellman and Ford over a list of edges.
extern "C" __global__ void relax_edges(const int4* edges, const int* dist, int* next, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m) return;
  int4 e = edges[i];  // source, target, weight, unused
  int d = dist[e.x];
  if (d != INT_MAX && d + e.z < next[e.y]) atomicMin(&next[e.y], d + e.z);
}

// Scans of the segments that begin at flags, within blocks of 1024.
extern "C" __global__ void __launch_bounds__(1024)
    scan_segments(const float* in, const unsigned char* flags, float* out) {
  __shared__ float values[32];
  __shared__ int heads[32];
  const int i = blockIdx.x * 1024 + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float v = in[i];
  int f = flags[i] != 0;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    float pv = __shfl_up_sync(~0u, v, d);
    int pf = __shfl_up_sync(~0u, f, d);
    if (lane >= d) {
      v = f ? v : pv + v;
      f |= pf;
    }
  }
  if (lane == 31) {
    values[warp] = v;
    heads[warp] = f;
  }
  __syncthreads();
  if (warp == 0) {
    float wv = values[lane];
    int wf = heads[lane];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      float pv = __shfl_up_sync(~0u, wv, d);
      int pf = __shfl_up_sync(~0u, wf, d);
      if (lane >= d) {
        wv = wf ? wv : pv + wv;
        wf |= pf;
      }
    }
    values[lane] = wv;
  }
  __syncthreads();
  if (warp > 0 && !f) v += values[warp - 1];
  out[i] = v;
}

// A join of a database: keys are looked up in a table of open addresses.
extern "C" __global__ void probe_table(const unsigned* __restrict__ keys,
                                       const uint2* __restrict__ table, unsigned mask,
                                       unsigned* out, int n) {
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    unsigned key = keys[i], slot = key * 2654435769u >> 11 & mask, found = ~0u;
    while (true) {
      uint2 entry = table[slot];
      if (entry.x == key) {
        found = entry.y;
        break;
      }
      if (entry.x == ~0u) break;
      slot = (slot + 1) & mask;
    }
    out[i] = found;
  }
}

// Dynamic time warping of pairs of series: a block per pair, one antidiagonal after another.
extern "C" __global__ void warp_series(const float* a, const float* b, float* cost, int length) {
  extern __shared__ float diagonal[];  // three, each of length + 1
  const int i = threadIdx.x;
  float* prev2 = diagonal;
  float* prev = diagonal + length + 1;
  float* now = prev + length + 1;
  const float own = a[(size_t)blockIdx.x * length + i];
  const float* y = b + (size_t)blockIdx.x * length;
  for (int k = i; k < 3 * (length + 1); k += blockDim.x) diagonal[k] = INFINITY;
  __syncthreads();
  for (int d = 0; d < 2 * length - 1; d++) {
    const int j = d - i;
    if (j >= 0 && j < length) {
      const float diff = own - y[j];
      const float best = d == 0 ? 0.0f : fminf(prev2[i], fminf(prev[i], prev[i + 1]));
      now[i + 1] = diff * diff + best;
    } else {
      now[i + 1] = INFINITY;
    }
    __syncthreads();
    float* spare = prev2;
    prev2 = prev;
    prev = now;
    now = spare;
  }
  if (i == length - 1) cost[blockIdx.x] = prev[length];
}

// Likeliest states of hidden Markov chains: a block per sequence, a thread per state.
extern "C" __global__ void viterbi(const int* observed, const float* __restrict__ transition,
                                   const float* __restrict__ emission, unsigned char* back,
                                   float* last, int steps, int symbols) {
  __shared__ float score[2][64];
  const int s = threadIdx.x;
  const int* o = observed + blockIdx.x * steps;
  score[0][s] = emission[s * symbols + o[0]];
  __syncthreads();
  for (int t = 1; t < steps; t++) {
    const float* old = score[(t - 1) & 1];
    float best = -INFINITY;
    int from = 0;
    for (int p = 0; p < 64; p++) {
      float v = old[p] + transition[p * 64 + s];
      if (v > best) {
        best = v;
        from = p;
      }
    }
    back[((size_t)blockIdx.x * steps + t) * 64 + s] = from;
    score[t & 1][s] = best + emission[s * symbols + o[t]];
    __syncthreads();
  }
  last[blockIdx.x * 64 + s] = score[(steps - 1) & 1][s];
}
