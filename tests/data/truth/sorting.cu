// Steps of sorts.

// One step of a bitonic sort in global memory: a thread per pair.
extern "C" __global__ void bitonic_step(unsigned* keys, int distance, int size, int pairs) {
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= pairs) return;
  int low = 2 * distance * (p / distance) + p % distance, high = low + distance;
  unsigned a = keys[low], b = keys[high];
  bool rising = (low & size) == 0;
  if ((a > b) == rising) {
    keys[low] = b;
    keys[high] = a;
  }
}

// Sorts 1024 keys in a block.
extern "C" __global__ void bitonic_block(const unsigned* in, unsigned* out) {
  __shared__ unsigned key[1024];
  const unsigned* from = in + blockIdx.x * 1024;
  for (int i = threadIdx.x; i < 1024; i += 512) key[i] = from[i];
  for (int size = 2; size <= 1024; size *= 2) {
    for (int distance = size / 2; distance; distance /= 2) {
      __syncthreads();
      int low = 2 * threadIdx.x - (threadIdx.x & (distance - 1));
      unsigned a = key[low], b = key[low + distance];
      if ((a > b) == ((low & size) == 0)) {
        key[low] = b;
        key[low + distance] = a;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += 512) out[blockIdx.x * 1024 + i] = key[i];
}

// Counts of one digit of four bits, per block.
extern "C" __global__ void radix_count(const unsigned* keys, int* counts, int shift,
                                       int per_block) {
  __shared__ int count[16];
  if (threadIdx.x < 16) count[threadIdx.x] = 0;
  __syncthreads();
  const unsigned* from = keys + blockIdx.x * per_block;
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) {
    atomicAdd(&count[(from[i] >> shift) & 15], 1);
  }
  __syncthreads();
  if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

// Splits the keys of a block by one bit, stably, with ballots, and stores them in order.
extern "C" __global__ void radix_split(const unsigned* in, unsigned* out, int bit) {
  __shared__ unsigned key[256];
  __shared__ int zeros[8];
  int t = threadIdx.x, warp = t / 32;
  unsigned k = in[blockIdx.x * 256 + t];
  unsigned zero = __ballot_sync(~0u, !((k >> bit) & 1));
  if (t % 32 == 0) zeros[warp] = __popc(zero);
  __syncthreads();
  int before = 0, total = 0;
  for (int w = 0; w < 8; w++) {
    before += w < warp ? zeros[w] : 0;
    total += zeros[w];
  }
  int rank = before + __popc(zero & ((1u << (t % 32)) - 1));
  int place = (k >> bit) & 1 ? total + t - rank : rank;
  key[place] = k;
  __syncthreads();
  out[blockIdx.x * 256 + t] = key[t];
}

// Merges two sorted halves of a block's 2048 keys by binary search (merge path by rank).
extern "C" __global__ void merge_ranks(const int* in, int* out, int half) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int run = t / (2 * half), within = t % (2 * half);
  const int* base = in + run * 2 * half;
  bool left = within < half;
  int key = base[within];
  const int* other = left ? base + half : base;
  int low = 0, high = half;
  while (low < high) {
    int middle = (low + high) / 2;
    bool before = left ? other[middle] < key : other[middle] <= key;
    if (before) low = middle + 1;
    else high = middle;
  }
  int own = left ? within : within - half;
  out[run * 2 * half + own + low] = key;
}
