// Atomics on few addresses.

extern "C" __global__ void count_one(int* sum) { atomicAdd(sum, 1); }

extern "C" __global__ void add_ints(int* sum, const int* in) {
  atomicAdd(sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

extern "C" __global__ void add_floats(float* sum, const float* in) {
  atomicAdd(sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

// Rounds of additions to some words of shared memory, which lanes take in turn.
template <typename Number>
__device__ void add_shared(Number* out, Number term, int words, int rounds) {
  __shared__ Number sums[64];
  if (threadIdx.x < 64) sums[threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < rounds; r++) atomicAdd(&sums[threadIdx.x % words], term);
  __syncthreads();
  if (threadIdx.x < words) out[blockIdx.x * words + threadIdx.x] = sums[threadIdx.x];
}

extern "C" __global__ void count_shared(int* out, int words, int rounds) {
  add_shared(out, 1, words, rounds);
}

extern "C" __global__ void add_ints_shared(int* out, int term, int words, int rounds) {
  add_shared(out, term, words, rounds);
}

extern "C" __global__ void add_floats_shared(float* out, float term, int words, int rounds) {
  add_shared(out, term, words, rounds);
}
