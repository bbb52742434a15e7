// Reads that blocks of small grids, and warps that never wait for one another, share, for
// benchmarks/microbenchmarks.py, which counts the sectors that the L1s and the L2 read.
//
// `tiles`: blocks load a tile of 4 KiB in each trip, wait at a barrier, and multiply for `work`
// steps. `walk`: each of `warps` warps of a block reads an array sector by sector, without a
// barrier, and multiplies for `work` steps behind each one. `pairs`: blocks of 64 threads read a KiB
// that those `columns` apart read, wait at a barrier, read another one that `columns` neighbours
// read (`both` 1; 0: without it; 2: that one alone), multiply, and end.
// Groups of `readers` neighbouring blocks read the same, or with `adjacent` 0, those that lie as far
// apart as there are groups. `shared_bytes` bounds the blocks on an SM. Where the blocks of small
// grids run, and the GPCs as blocks of clusters show them, are printed as messages.
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "device.cuh"

constexpr u32 THREADS = 256, SECTOR_WORDS = 8, PAIR_THREADS = 64;
constexpr int WHOLE_SM = 199 * 1024, SMALL = 8 * 1024;
constexpr u64 BYTES = 1ull << 30;

__device__ u32 group_of(u32 readers, u32 adjacent) {
  return adjacent ? blockIdx.x / readers : blockIdx.x % ((gridDim.x + readers - 1) / readers);
}

__global__ void __launch_bounds__(THREADS)
    tiles(const float4* in, float* out, u32 readers, u32 adjacent, u32 trips, u32 work) {
  extern __shared__ float4 tile[];
  float sum = threadIdx.x;
  const float4* from = in + u64(group_of(readers, adjacent)) * trips * THREADS + threadIdx.x;
  for (u32 trip = 0; trip < trips; ++trip) {
    tile[threadIdx.x] = from[trip * THREADS];
    __syncthreads();
#pragma unroll 4
    for (u32 step = 0; step < work; ++step) {
      float4 other = tile[step & (THREADS - 1)];
      sum = fmaf(sum, other.x, other.y);
      sum = fmaf(sum, other.z, other.w);
    }
    __syncthreads();
  }
  out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

__global__ void walk(const float* in, float* out, u32 readers, u32 adjacent, u32 sectors, u32 work) {
  extern __shared__ float4 unused[];
  float sum = threadIdx.x;
  const float* from = in + u64(group_of(readers, adjacent)) * sectors * SECTOR_WORDS;
#pragma unroll 1
  for (u32 sector = 0; sector < sectors; ++sector) {
    float value = from[sector * SECTOR_WORDS];
    sum = fmaf(sum, value, value);
#pragma unroll 1
    for (u32 step = 0; step < work; ++step) sum = fmaf(sum, value, 1.0f);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(PAIR_THREADS)
    pairs(const float4* in, float* out, u32 columns, u32 both, u32 work) {
  __shared__ float4 tile[PAIR_THREADS];
  extern __shared__ float4 unused[];
  const float4* row = in + u64(columns + blockIdx.x / columns) * PAIR_THREADS + threadIdx.x;
  const float4* column = in + u64(blockIdx.x % columns) * PAIR_THREADS + threadIdx.x;
  float4 value = both == 2 ? row[0] : column[0];
  tile[threadIdx.x] = value;
  __syncthreads();
  float sum = tile[threadIdx.x ^ 1].x;
  if (both == 1) sum += row[0].x;
#pragma unroll 4
  for (u32 step = 0; step < work; ++step) {
    float4 other = tile[step & (PAIR_THREADS - 1)];
    sum = fmaf(sum, other.x, other.y);
    sum = fmaf(sum, other.z, other.w);
  }
  out[blockIdx.x * PAIR_THREADS + threadIdx.x] = sum;
}

__device__ float4 load_quad(const float4* from) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
  return v;
}

// In each trip a warp reads 512 bytes in rows of `row_bytes` that lie 2 KiB apart, `again` times more
// from the L1, and multiplies for `work` steps.
__global__ void strips(const float4* in, float* out, u32 readers, u32 adjacent, u32 row_bytes,
                       u32 again, u32 trips, u32 work) {
  extern __shared__ float4 unused[];
  u32 lanes = row_bytes / 16, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  u32 row = (threadIdx.x / 32) * (32 / lanes) + lane / lanes;
  const float4* from = in + u64(group_of(readers, adjacent)) * warps * trips * 32 + lane % lanes;
  u32 pitch = trips * lanes;
  float sum = threadIdx.x;
#pragma unroll 1
  for (u32 trip = 0; trip < trips; ++trip) {
    const float4* at = from + row * pitch + trip * lanes;
    float4 value = load_quad(at);
    sum = fmaf(sum, value.x, value.y);
#pragma unroll 1
    for (u32 time = 0; time < again; ++time) {
      float4 other = load_quad(at);
      sum = fmaf(sum, other.z, other.w);
    }
#pragma unroll 1
    for (u32 step = 0; step < work; ++step) sum = fmaf(sum, value.x, 1.0f);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

struct Place {
  u32 sm;
  u64 begin;
};

__global__ void places(Place* out, u32 clocks) {
  extern __shared__ float4 unused[];
  u64 begin = clock_of_sm();
  if (threadIdx.x == 0) out[blockIdx.x] = {multiprocessor(), begin};
  while (clock_of_sm() - begin < clocks) {
  }
}

static void print_places(int blocks, int threads, int bytes) {
  auto out = device_memory<Place>(blocks);
  places<<<blocks, threads, bytes>>>(out, 40000);
  finish();
  std::vector<Place> found(blocks);
  CHECK(cudaMemcpy(found.data(), out, blocks * sizeof(Place), cudaMemcpyDeviceToHost));
  std::fprintf(stderr, "places,%d,%d,%d:", blocks, threads, bytes);
  for (auto& place : found) std::fprintf(stderr, " %u", place.sm);
  std::fprintf(stderr, "\n");
  CHECK(cudaFree(out));
}

// SMs that ever hold blocks of one cluster belong to one GPC.
static void print_gpcs() {
  int sms = multiprocessors(), size = 8, blocks = sms / size * size;
  std::vector<int> parent(sms);
  std::iota(parent.begin(), parent.end(), 0);
  auto root = [&](int i) {
    while (parent[i] != i) i = parent[i];
    return i;
  };
  auto out = device_memory<Place>(blocks);
  for (int turn = 0; turn < 20; ++turn) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(size), 1, 1};
    cudaLaunchConfig_t launch{};
    launch.gridDim = dim3(blocks), launch.blockDim = dim3(32), launch.dynamicSmemBytes = WHOLE_SM;
    launch.attrs = &cluster, launch.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&launch, places, out, 4000u));
    std::vector<Place> found(blocks);
    CHECK(cudaMemcpy(found.data(), out, blocks * sizeof(Place), cudaMemcpyDeviceToHost));
    for (int i = 0; i < blocks; ++i) parent[root(found[i].sm)] = root(found[i / size * size].sm);
  }
  std::map<int, std::vector<int>> gpcs;
  for (int i = 0; i < sms; ++i) gpcs[root(i)].push_back(i);
  for (auto& gpc : gpcs) {
    std::fprintf(stderr, "GPC:");
    for (int sm : gpc.second) std::fprintf(stderr, " %d", sm);
    std::fprintf(stderr, "\n");
  }
}

int main() {
  auto in = random_memory(BYTES);
  auto words = static_cast<const float*>(in);
  auto quads = static_cast<const float4*>(in);
  auto out = device_memory<float>(1ull << 20);
  u32 sms = multiprocessors();
  for (auto kernel : {(const void*)tiles, (const void*)walk, (const void*)pairs, (const void*)strips, (const void*)places})
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, WHOLE_SM));
  print_gpcs();
  for (int bytes : {WHOLE_SM, SMALL, 0})
    for (u32 blocks : {4u, 16u, 64u, sms, 2 * sms})
      for (int threads : {64, 256}) print_places(blocks, threads, bytes);
  print_places(8 * sms, 64, 0);
  std::printf("kernel,blocks,shared_bytes,warps,readers,adjacent,trips,work\n");
  auto tiled = [&](u32 blocks, int bytes, u32 readers, u32 adjacent, u32 trips, u32 work) {
    tiles<<<blocks, THREADS, bytes>>>(quads, out, readers, adjacent, trips, work);
    finish();
    std::printf("tiles,%u,%d,%u,%u,%u,%u,%u\n", blocks, bytes, THREADS / 32, readers, adjacent, trips, work);
  };
  for (u32 work : {16u, 256u, 1024u})
    for (int bytes : {SMALL, WHOLE_SM})
      for (u32 blocks : {2u, 4u, 16u, 64u, sms}) {
        tiled(blocks, bytes, blocks, 1, 32, work);
        if (blocks >= 16) tiled(blocks, bytes, 4, 1, 32, work);
        if (blocks >= 16) tiled(blocks, bytes, 4, 0, 32, work);
      }
  auto walked = [&](u32 blocks, u32 warps, int bytes, u32 readers, u32 adjacent, u32 work) {
    u32 sectors = 512;
    walk<<<blocks, warps * 32, bytes>>>(words, out, readers, adjacent, sectors, work);
    finish();
    std::printf("walk,%u,%d,%u,%u,%u,%u,%u\n", blocks, bytes, warps, readers, adjacent, sectors, work);
  };
  for (u32 work : {1u, 64u})
    for (u32 warps : {1u, 2u, 8u}) {
      for (u32 blocks : {4u, 16u, 64u, sms}) {
        walked(blocks, warps, WHOLE_SM, blocks, 1, work);
        if (blocks >= 16) walked(blocks, warps, WHOLE_SM, 4, 1, work);
      }
      walked(64, warps, 0, 4, 1, work);
      walked(sms, warps, 0, 4, 0, work);
      for (u32 per_sm : {2u, 8u}) {
        int bytes = 200 * 1024 / per_sm - 1024;
        walked(per_sm * sms, warps, bytes, 4, 1, work);
        walked(per_sm * sms, warps, bytes, sms, 1, work);
        walked(per_sm * sms, warps, bytes, sms * per_sm, 1, work);
      }
    }
  for (u32 per_sm : {1u, 2u, 4u, 8u})
    for (u32 row_bytes : {32u, 128u})
      for (u32 again : {0u, 32u})
        for (u32 work : {4u, 256u}) {
          int bytes = 200 * 1024 / per_sm - 1024;
          u32 blocks = per_sm * sms, readers = 16, trips = 64;
          strips<<<blocks, 128, bytes>>>(quads, out, readers, 1, row_bytes, again, trips, work);
          finish();
          std::printf("strips %u again %u,%u,%d,4,%u,1,%u,%u\n", row_bytes, again, blocks, bytes, readers, trips, work);
        }
  for (u32 both : {0u, 1u, 2u})
    for (u32 work : {16u, 512u})
      for (u32 columns : {16u, 63u})
        for (u32 blocks : {sms, 8 * sms, 32 * sms}) {
          pairs<<<blocks, PAIR_THREADS, 0>>>(quads, out, columns, both, work);
          finish();
          std::printf("pairs,%u,0,2,%u,%u,1,%u\n", blocks, columns, both, work);
        }
  return 0;
}
