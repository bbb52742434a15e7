// Blocks of CUB, as people write them.
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_store.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void block_reduce(const float* x, float* out) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  float items[4];
  for (int k = 0; k < 4; ++k) items[k] = x[(blockIdx.x * 128 + threadIdx.x) * 4 + k];
  float total = Reduce(storage).Sum(items);
  __syncthreads();
  float most = Reduce(storage).Reduce(items[0], cuda::maximum<>{});
  if (threadIdx.x == 0) { out[2 * blockIdx.x] = total; out[2 * blockIdx.x + 1] = most; }
}
extern "C" __global__ void block_scan(const int* x, int* out) {
  using Scan = cub::BlockScan<int, 256>;
  using Load = cub::BlockLoad<int, 256, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, 256, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union { typename Scan::TempStorage scan; typename Load::TempStorage load; typename Store::TempStorage store; } s;
  int items[4];
  Load(s.load).Load(x + blockIdx.x * 1024, items);
  __syncthreads();
  Scan(s.scan).ExclusiveSum(items, items);
  __syncthreads();
  Store(s.store).Store(out + blockIdx.x * 1024, items);
}
extern "C" __global__ void block_sort(const unsigned* keys, unsigned* out, int* values) {
  using Sort = cub::BlockRadixSort<unsigned, 128, 4, int>;
  __shared__ typename Sort::TempStorage storage;
  unsigned k[4]; int v[4];
  for (int i = 0; i < 4; ++i) { k[i] = keys[blockIdx.x * 512 + threadIdx.x * 4 + i]; v[i] = threadIdx.x * 4 + i; }
  Sort(storage).Sort(k, v);
  for (int i = 0; i < 4; ++i) { out[blockIdx.x * 512 + threadIdx.x * 4 + i] = k[i]; values[blockIdx.x * 512 + threadIdx.x * 4 + i] = v[i]; }
}
