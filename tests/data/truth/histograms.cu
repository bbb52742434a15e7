// Histograms, atomics and votes.

extern "C" __global__ void histogram_shared(const unsigned char* in, unsigned* bins, int n) {
  __shared__ unsigned count[256];
  count[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&count[in[i]], 1u);
  }
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], count[threadIdx.x]);
}

// Floating-point atomics in shared memory are a loop of compare-and-swap.
extern "C" __global__ void weights_shared(const int* bin, const float* weight, float* bins, int n) {
  __shared__ float sum[128];
  if (threadIdx.x < 128) sum[threadIdx.x] = 0.0f;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&sum[bin[i]], weight[i]);
  __syncthreads();
  if (threadIdx.x < 128) atomicAdd(&bins[threadIdx.x], sum[threadIdx.x]);
}

extern "C" __global__ void histogram_global(const int* bin, int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[bin[i]], 1);
}

// The lanes with the same bin elect one that adds for all of them.
extern "C" __global__ void histogram_aggregated(const int* bin, int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool in = i < n;
  int b = in ? bin[i] : -1;
  unsigned peers = __match_any_sync(~0u, b);
  if (in && __ffs(peers) - 1 == threadIdx.x % 32) atomicAdd(&bins[b], __popc(peers));
}

// Keeps the positive elements, in any order; one atomic per warp.
extern "C" __global__ void compact(const float* in, float* out, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  float v = i < n ? in[i] : -1.0f;
  unsigned keep = __ballot_sync(~0u, v > 0.0f);
  int start = 0;
  if (lane == 0 && keep) start = atomicAdd(count, __popc(keep));
  start = __shfl_sync(~0u, start, 0);
  if (v > 0.0f) out[start + __popc(keep & ((1u << lane) - 1))] = v;
}

// Votes alone: how many of 32 rounds all, any and an odd number of lanes agree in.
extern "C" __global__ void votes(const unsigned* in, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word = in[i % n], result = 0;
#pragma unroll 1
  for (int bit = 0; bit < 32; bit++) {
    bool set = (word >> bit) & 1;
    result += __all_sync(~0u, set) + 2 * __any_sync(~0u, set);
    result += 4 * (__popc(__ballot_sync(~0u, set)) & 1);
  }
  out[i] = result;
}
