// Additions in shared memory to words that share banks, for benchmarks/microbenchmarks.py, which
// counts their compare-and-swaps and the wavefronts of their loads.
//
// The lanes of a warp add to words `stride` apart, each of which `sharing_lanes` of them share, or
// to random ones of the first `words`. All warps of a block add to the same words, or with
// `own_words` each to its own.
#include "device.cuh"

constexpr u32 ADDITIONS = 32;

template <class Number, int WORDS>
__device__ void clear(Number (&words)[WORDS]) {
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x)
    words[i] = 0;
  __syncthreads();
}

__global__ void floats(u32 sharing_lanes, u32 stride, u32 own_words, float* out, u64* clocks) {
  __shared__ float words[8192];
  clear(words);
  u32 place = threadIdx.x % 32 / sharing_lanes * stride + own_words * (threadIdx.x / 32);
  u64 begin = clock_of_sm();
  for (u32 i = 0; i < ADDITIONS; ++i)
    atomicAdd(words + place, 1.0f + i);
  __syncthreads();
  u64 end = clock_of_sm();
  out[blockIdx.x * blockDim.x + threadIdx.x] = words[threadIdx.x];
  if (threadIdx.x == 0 && blockIdx.x == 0)
    *clocks = end - begin;
}

__global__ void doubles(u32 sharing_lanes, u32 stride, double* out) {
  __shared__ double words[2048];
  clear(words);
  u32 place = threadIdx.x % 32 / sharing_lanes * stride;
  for (u32 i = 0; i < ADDITIONS; ++i)
    atomicAdd(words + place, 1.0 + i);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = words[threadIdx.x];
}

__global__ void random_floats(u32 count, float* out, u64* clocks) {
  __shared__ float words[4096];
  clear(words);
  u64 begin = clock_of_sm();
  for (u32 i = 0; i < ADDITIONS; ++i)
    atomicAdd(words + hashed(i * 1024 + threadIdx.x, blockIdx.x) % count, 1.0f + i);
  __syncthreads();
  u64 end = clock_of_sm();
  out[blockIdx.x * blockDim.x + threadIdx.x] = words[threadIdx.x];
  if (threadIdx.x == 0 && blockIdx.x == 0)
    *clocks = end - begin;
}

int main() {
  int sms = multiprocessors();
  double* out = device_memory<double>(sms * 64 * 32);
  u64* clocks;
  CHECK(cudaMallocManaged(&clocks, sizeof *clocks));
  struct {
    u32 sharing_lanes, stride, own_words;
    int warps, blocks;
  } cases[] = {{1, 1, 0, 1, 1},   {32, 1, 0, 1, 1},  {8, 1, 0, 1, 1},   {1, 1, 0, 8, 1},
               {1, 1, 0, 8, 8},   {4, 1, 0, 8, 1},   {32, 1, 0, 8, 1},  {32, 1, 0, 8, 8},
               {4, 1, 0, 8, 8},   {1, 1, 0, 16, 1},  {1, 1, 0, 16, 4},  {1, 1, 0, 32, 2},
               {32, 1, 0, 32, 1}, {1, 32, 0, 1, 1},  {1, 8, 0, 1, 1},   {1, 2, 0, 1, 1},
               {4, 32, 0, 1, 1},  {1, 32, 1, 8, 8},  {1, 32, 0, 8, 1},  {1, 32, 0, 8, 8},
               {1, 8, 0, 8, 8},   {1, 33, 1, 8, 8},  {32, 1, 1, 8, 1},  {32, 1, 1, 8, 8},
               {8, 40, 1, 8, 8}};
  std::printf("kernel,sharing_lanes,stride,own_words,words,warps,blocks_per_sm,additions,"
              "clocks_per_addition\n");
  for (auto c : cases) {
    floats<<<sms * c.blocks, c.warps * 32>>>(c.sharing_lanes, c.stride, c.own_words,
                                             reinterpret_cast<float*>(out), clocks);
    finish();
    std::printf("floats,%u,%u,%u,,%d,%d,%u,%.1f\n", c.sharing_lanes, c.stride, c.own_words, c.warps,
                c.blocks, ADDITIONS, double(*clocks) / ADDITIONS);
  }
  struct {
    u32 words;
    int warps, blocks;
  } drawn[] = {{32, 1, 1},  {128, 1, 1},  {1024, 1, 1}, {4096, 1, 1},
               {128, 8, 1}, {128, 16, 4}, {1024, 8, 8}, {32, 8, 8}};
  for (auto c : drawn) {
    random_floats<<<sms * c.blocks, c.warps * 32>>>(c.words, reinterpret_cast<float*>(out),
                                                    clocks);
    finish();
    std::printf("random_floats,,,,%u,%d,%d,%u,%.1f\n", c.words, c.warps, c.blocks, ADDITIONS,
                double(*clocks) / ADDITIONS);
  }
  for (int warps : {1, 8})
    for (u32 stride : {1, 2, 16, 32}) {
      doubles<<<sms, warps * 32>>>(1, stride, out);
      finish();
      std::printf("doubles,1,%u,0,,%d,1,%u,\n", stride, warps, ADDITIONS);
    }
  doubles<<<sms, 32>>>(4, 1, out);
  finish();
  std::printf("doubles,4,1,0,,1,1,%u,\n", ADDITIONS);
  return 0;
}
