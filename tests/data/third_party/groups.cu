// Cooperative groups, as people write them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

extern "C" __global__ void block_sum(const float* x, float* sums, int n) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  __shared__ float partial[32];
  float v = 0;
  for (int i = block.group_index().x * block.size() + block.thread_rank(); i < n; i += gridDim.x * block.size()) v += x[i];
  v = cg::reduce(warp, v, cg::plus<float>());
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = v;
  block.sync();
  if (warp.meta_group_rank() == 0) {
    v = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : 0.f;
    v = cg::reduce(warp, v, cg::plus<float>());
    if (warp.thread_rank() == 0) sums[blockIdx.x] = v;
  }
}
extern "C" __global__ void tiles(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int v = x[i];
  int s = v;
  for (int d = tile.size() / 2; d > 0; d /= 2) s += tile.shfl_xor(s, d);
  out[i] = s;
  out[n + i] = tile.any(v > 5);
  out[2 * n + i] = tile.ballot(v & 1);
  out[3 * n + i] = tile.shfl(v, 3);
  out[4 * n + i] = cg::reduce(tile, v, cg::greater<int>());
  out[5 * n + i] = cg::exclusive_scan(tile, v);
  out[6 * n + i] = cg::inclusive_scan(tile, v, cg::bit_or<int>());
  out[7 * n + i] = tile.match_any(v & 3);
}
extern "C" __global__ void compact(const int* x, int* out, int* count, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    if (x[i] > 0) {
      auto active = cg::coalesced_threads();
      int at = 0;
      if (active.thread_rank() == 0) at = atomicAdd(count, (int)active.size());
      at = active.shfl(at, 0) + active.thread_rank();
      out[at] = x[i];
    }
}
extern "C" __global__ void partitions(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto half = cg::binary_partition(warp, x[i] > 0);
  auto same = cg::labeled_partition(warp, x[i] & 3);
  out[i] = half.size();
  out[n + i] = cg::reduce(same, x[i], cg::plus<int>());
  out[2 * n + i] = same.thread_rank();
}
extern "C" __global__ void staged(const float* x, float* out, int n) {
  extern __shared__ float tile[];
  auto block = cg::this_thread_block();
  const float* from = x + blockIdx.x * blockDim.x;
  cg::memcpy_async(block, tile, from, sizeof(float) * blockDim.x);
  cg::wait(block);
  out[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
