// Accesses that data decides: sparse products, gathers, chains.

extern "C" __global__ void csr_thread(const int* start, const int* column, const float* value,
                                      const float* x, float* y, int rows) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int e = start[row]; e < start[row + 1]; e++) sum += value[e] * x[column[e]];
  y[row] = sum;
}

extern "C" __global__ void csr_warp(const int* start, const int* column, const float* value,
                                    const float* x, float* y, int rows) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int e = start[row] + lane; e < start[row + 1]; e += 32) sum += value[e] * x[column[e]];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (lane == 0) y[row] = sum;
}

// Rows padded to one length, stored by columns.
extern "C" __global__ void ell(const int* column, const float* value, const float* x, float* y,
                               int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int k = 0; k < width; k++) sum += value[k * rows + row] * x[column[k * rows + row]];
  y[row] = sum;
}

extern "C" __global__ void gather(const int* index, const float* table, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = table[index[i]];
}

extern "C" __global__ void scatter(const int* index, const float* in, float* table, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) table[index[i]] = in[i];
}

// Rows of a table by number, as an embedding layer: a warp per row of 128 floats.
extern "C" __global__ void embed(const int* token, const float4* table, float4* out, int tokens) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row < tokens) out[(size_t)row * 32 + lane] = table[(size_t)token[row] * 32 + lane];
}

// Each thread follows its own chain: every load waits for the one before.
extern "C" __global__ void chase(const int* next, int* end, int steps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int at = i;
  for (int s = 0; s < steps; s++) at = next[at];
  end[i] = at;
}

// A thread per column: coalesced, but few threads with long chains of loads.
extern "C" __global__ void sum_columns(const float* in, float* out, int rows, int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  float sum = 0.0f;
  for (int r = 0; r < rows; r++) sum += in[(size_t)r * columns + c];
  out[c] = sum;
}

// Breadth-first search, one level: a thread per vertex, whose neighbours are marked.
extern "C" __global__ void search_level(const int* start, const int* neighbour, int* level,
                                        int current, int vertices) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= vertices || level[v] != current) return;
  for (int e = start[v]; e < start[v + 1]; e++) {
    int other = neighbour[e];
    if (level[other] < 0) level[other] = current + 1;
  }
}

// Binary search of each query in a sorted table.
extern "C" __global__ void lower_bound(const int* table, const int* query, int* place, int size,
                                       int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int q = query[i], low = 0, high = size;
  while (low < high) {
    int middle = (low + high) / 2;
    if (table[middle] < q) low = middle + 1;
    else high = middle;
  }
  place[i] = low;
}
