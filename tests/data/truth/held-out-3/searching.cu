// Counting, searching and compressing.

// Counts of 32 bins, of which each thread has its own in shared memory.
extern "C" __global__ void count_private(const unsigned* in, unsigned* bins, int n) {
  __shared__ unsigned counts[32][64];
  for (int b = 0; b < 32; b++) counts[b][threadIdx.x] = 0;
  for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64)
    counts[in[i] >> 27][threadIdx.x]++;
  __syncthreads();
  if (threadIdx.x < 32) {
    unsigned sum = 0;
    for (int t = 0; t < 64; t++) sum += counts[threadIdx.x][(t + threadIdx.x) % 64];
    atomicAdd(&bins[threadIdx.x], sum);
  }
}

// The starts of runs of equal values, packed within each block.
extern "C" __global__ void run_starts(const int* in, int* starts, int* many) {
  __shared__ int before[8];
  int i = blockIdx.x * 256 + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  bool start = i == 0 || in[i] != in[i - 1];
  unsigned votes = __ballot_sync(~0u, start);
  if (lane == 0) before[warp] = __popc(votes);
  __syncthreads();
  int place = __popc(votes & ((1u << lane) - 1)), all = 0;
  for (int w = 0; w < 8; w++) {
    place += w < warp ? before[w] : 0;
    all += before[w];
  }
  if (start) starts[blockIdx.x * 256 + place] = i;
  if (threadIdx.x == 0) many[blockIdx.x] = all;
}

// Look keys up in a sorted table of 2^20: a binary search per thread.
extern "C" __global__ void lower_bounds(const int* table, const int* key, int* out) {
  int i = blockIdx.x * 256 + threadIdx.x, wanted = key[i], low = 0, high = 1 << 20;
  while (low < high) {
    int middle = (low + high) / 2;
    if (table[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  out[i] = low;
}

// The least Manhattan distance of points to 256 centres, which pass through shared memory.
extern "C" __global__ void nearest(const float* points, const float* centres, int* out, int n) {
  __shared__ float tile[256][4];
  for (int k = threadIdx.x; k < 1024; k += 256) tile[k / 4][k % 4] = centres[k];
  __syncthreads();
  int i = blockIdx.x * 256 + threadIdx.x;
  float x = points[i], y = points[n + i], z = points[2 * n + i], w = points[3 * n + i];
  float least = 1e30f;
  int best = 0;
  for (int c = 0; c < 256; c++) {
    float far = fabsf(x - tile[c][0]) + fabsf(y - tile[c][1]) + fabsf(z - tile[c][2]) +
                fabsf(w - tile[c][3]);
    if (far < least) least = far, best = c;
  }
  out[i] = best;
}
