// Reductions and scans.

extern "C" __global__ void sum_atomic(const float* in, float* total, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = i < n ? in[i] : 0.0f;
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

// A grid of any size; one atomic per block.
extern "C" __global__ void sum_grid_stride(const float* in, float* total, int n) {
  __shared__ float part[32];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (threadIdx.x == 0) atomicAdd(total, sum);
  }
}

extern "C" __global__ void sum_float4(const float4* in, float* total, int n) {
  __shared__ float part[8];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 8; warp++) sum += part[warp];
    atomicAdd(total, sum);
  }
}

// Neighbours first, so that the working threads are spread over all warps.
extern "C" __global__ void sum_modulo(const float* in, float* out) {
  extern __shared__ float part[];
  int t = threadIdx.x;
  part[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    if (t % (2 * s) == 0) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// Consecutive threads, but a stride between their elements, which grows: bank conflicts.
extern "C" __global__ void sum_strided(const float* in, float* out) {
  extern __shared__ float part[];
  int t = threadIdx.x;
  part[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    int i = 2 * s * t;
    if (i < blockDim.x) part[i] += part[i + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// Halves are added: no conflicts.
extern "C" __global__ void sum_halves(const float* in, float* out) {
  extern __shared__ float part[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
  part[t] = in[i] + in[i + blockDim.x];
  __syncthreads();
  for (int s = blockDim.x / 2; s; s /= 2) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void dot_double(const double* a, const double* b, double* total, int n) {
  double sum = 0.0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += a[i] * b[i];
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

// Largest element of each row and where it is, a warp per row.
extern "C" __global__ void argmax_rows(const float* in, int* where, int rows, int columns) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float best = -1e30f;
  int at = 0;
  for (int c = lane; c < columns; c += 32) {
    float v = in[(size_t)row * columns + c];
    if (v > best) best = v, at = c;
  }
  for (int offset = 16; offset; offset /= 2) {
    float other = __shfl_down_sync(~0u, best, offset);
    int place = __shfl_down_sync(~0u, at, offset);
    if (other > best || (other == best && place < at)) best = other, at = place;
  }
  if (lane == 0) where[row] = at;
}

// Inclusive scan of each block, Hillis and Steele's, in shared memory.
extern "C" __global__ void scan_doubling(const float* in, float* out) {
  extern __shared__ float part[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  part[t] = in[i];
  for (int offset = 1; offset < blockDim.x; offset *= 2) {
    __syncthreads();
    float before = t >= offset ? part[t - offset] : 0.0f;
    __syncthreads();
    part[t] += before;
  }
  out[i] = part[t];
}

// Inclusive scan of 1024 elements by 256 threads: four a thread, then warps, then the block.
extern "C" __global__ void scan_warps(const int4* in, int4* out) {
  __shared__ int sums[8];
  int t = threadIdx.x, lane = t % 32;
  int4 v = in[blockIdx.x * 256 + t];
  v.y += v.x;
  v.z += v.y;
  v.w += v.z;
  int sum = v.w;
  for (int offset = 1; offset < 32; offset *= 2) {
    int before = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == 31) sums[t / 32] = sum;
  __syncthreads();
  if (t < 8) {
    int total = sums[t];
    for (int offset = 1; offset < 8; offset *= 2) {
      int before = __shfl_up_sync(0xff, total, offset);
      if (t >= offset) total += before;
    }
    sums[t] = total;
  }
  __syncthreads();
  int start = sum - v.w + (t >= 32 ? sums[t / 32 - 1] : 0);
  out[blockIdx.x * 256 + t] = make_int4(v.x + start, v.y + start, v.z + start, v.w + start);
}
