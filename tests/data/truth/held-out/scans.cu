// Scans, sorts and histograms.

// Exclusive scan of 512 elements by 256 threads: up and down a tree, with its bank conflicts.
extern "C" __global__ void scan_tree(const int* in, int* out) {
  __shared__ int tree[512];
  int t = threadIdx.x;
  const int* from = in + (size_t)blockIdx.x * 512;
  tree[2 * t] = from[2 * t];
  tree[2 * t + 1] = from[2 * t + 1];
  int offset = 1;
  for (int d = 256; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
    offset *= 2;
  }
  if (t == 0) tree[511] = 0;
  for (int d = 1; d < 512; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      int left = offset * (2 * t + 1) - 1, right = offset * (2 * t + 2) - 1, before = tree[left];
      tree[left] = tree[right];
      tree[right] += before;
    }
  }
  __syncthreads();
  int* to = out + (size_t)blockIdx.x * 512;
  to[2 * t] = tree[2 * t];
  to[2 * t + 1] = tree[2 * t + 1];
}

// The last step of a scan of many blocks: the sum of those before is added to each element.
extern "C" __global__ void add_offsets(const int* offset, int4* data) {
  int add = offset[blockIdx.x];
  int4 v = data[blockIdx.x * 256 + threadIdx.x];
  data[blockIdx.x * 256 + threadIdx.x] = make_int4(v.x + add, v.y + add, v.z + add, v.w + add);
}

// Each thread sorts 16 keys of its own by insertion.
extern "C" __global__ void sort_insertion(const int* in, int* out, int threads) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= threads) return;
  int keys[16];
  for (int k = 0; k < 16; k++) {
    int key = in[k * threads + t], at = k;
    while (at > 0 && keys[at - 1] > key) {
      keys[at] = keys[at - 1];
      at--;
    }
    keys[at] = key;
  }
  for (int k = 0; k < 16; k++) out[k * threads + t] = keys[k];
}

// Odd-even transposition in shared memory.
extern "C" __global__ void sort_odd_even(const unsigned* in, unsigned* out) {
  __shared__ unsigned key[256];
  int t = threadIdx.x, n = 256;
  key[t] = in[blockIdx.x * n + t];
  key[t + 128] = in[blockIdx.x * n + t + 128];
  for (int pass = 0; pass < n; pass++) {
    __syncthreads();
    int left = 2 * t + (pass & 1);
    if (left + 1 < n) {
      unsigned a = key[left], b = key[left + 1];
      key[left] = min(a, b);
      key[left + 1] = max(a, b);
    }
  }
  __syncthreads();
  out[blockIdx.x * n + t] = key[t];
  out[blockIdx.x * n + t + 128] = key[t + 128];
}

// A histogram in shared memory for each warp, added up at the end.
extern "C" __global__ void histogram_warps(const uchar4* in, unsigned* bins, int quads) {
  __shared__ unsigned count[8][256];
  unsigned* own = count[threadIdx.x / 32];
  for (int i = threadIdx.x; i < 8 * 256; i += blockDim.x) count[0][i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
    uchar4 v = in[i];
    atomicAdd(&own[v.x], 1);
    atomicAdd(&own[v.y], 1);
    atomicAdd(&own[v.z], 1);
    atomicAdd(&own[v.w], 1);
  }
  __syncthreads();
  unsigned sum = 0;
  for (int warp = 0; warp < 8; warp++) sum += count[warp][threadIdx.x];
  atomicAdd(&bins[threadIdx.x], sum);
}

// The smallest key of each group, by atomics on global memory.
extern "C" __global__ void group_minima(const int* group, const int* key, int* least, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMin(&least[group[i]], key[i]);
}

// Keys are put into a table with open addressing.
extern "C" __global__ void hash_insert(const unsigned* keys, unsigned* table, int n,
                                       unsigned mask) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned key = keys[i], at = (key * 2654435761u) >> 7;
  while (true) {
    at &= mask;
    unsigned found = atomicCAS(&table[at], 0u, key);
    if (found == 0u || found == key) return;
    at++;
  }
}

// One block adds up a long array.
extern "C" __global__ void sum_one_block(const float4* in, float* out, int quads) {
  __shared__ float part[32];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < quads; i += blockDim.x) {
    float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = part[threadIdx.x];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x == 0) *out = sum;
  }
}

// A block of one warp adds up a row of 64.
extern "C" __global__ void sum_short_rows(const float2* in, float* out) {
  float2 v = in[(size_t)blockIdx.x * 32 + threadIdx.x];
  float sum = v.x + v.y;
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
