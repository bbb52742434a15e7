// Copies one box of a tensor and shows all of shared memory; -D RANK and -D MODE choose the copy.
#include <cuda.h>

#if RANK == 1
#define POINT "{%2}"
#elif RANK == 2
#define POINT "{%2, %3}"
#elif RANK == 3
#define POINT "{%2, %3, %4}"
#elif RANK == 4
#define POINT "{%2, %3, %4, %5}"
#else
#define POINT "{%2, %3, %4, %5, %6}"
#endif
#define TEXT(x) #x
#define DIMENSIONS(rank) TEXT(rank) "d"
#ifndef OFFSETS
#define OFFSETS ""
#endif
#ifndef MODE
#define MODE "tile"
#endif
#ifndef STORE_MODE
#define STORE_MODE "tile"
#endif

extern __shared__ __align__(1024) unsigned char tile[];

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void fill(const unsigned *initial, int words)
{
  for (int i = threadIdx.x; i < words; i += blockDim.x) ((unsigned *)tile)[i] = initial[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

// at: the coordinates, the fastest first, then the offset of the box in shared memory, the bytes
// that the copy completes, and the offsets of im2col.
extern "C" __global__ void load(const __grid_constant__ CUtensorMap map, const int *at,
                                const unsigned *initial, unsigned *out, int words)
{
  __shared__ alignas(8) unsigned long long ready;
  unsigned bar = shared_address(&ready);
  fill(initial, words);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;"
                 :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(bar), "r"(at[6]) : "memory");
    asm volatile("cp.async.bulk.tensor." DIMENSIONS(RANK) ".shared::cluster.global." MODE
                 ".mbarrier::complete_tx::bytes [%0], [%1, " POINT "], [%7]" OFFSETS ";"
                 :: "r"(shared_address(tile) + at[5]), "l"(&map), "r"(at[0]), "r"(at[1]),
                    "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(bar), "h"((short)at[7]),
                    "h"((short)at[8]), "h"((short)at[9]) : "memory");
  }
  __syncthreads();
  int done = 0;
  for (int tries = 0; tries < 5000 && !done; ++tries)
    asm volatile("{.reg .pred p;\n\tmbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
  if (threadIdx.x == 0) out[words] = done;
  for (int i = threadIdx.x; i < words; i += blockDim.x) out[i] = ((unsigned *)tile)[i];
}

// Copies a box in each block, and nothing else: for counters.
struct Point { int at[5], step[5], offset, bytes; };

extern "C" __global__ void count_loads(const __grid_constant__ CUtensorMap map, Point p)
{
  __shared__ alignas(8) unsigned long long ready;
  unsigned bar = shared_address(&ready);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;"
                 :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(bar), "r"(p.bytes) : "memory");
    int b = blockIdx.x;
    asm volatile("cp.async.bulk.tensor." DIMENSIONS(RANK) ".shared::cluster.global." MODE
                 ".mbarrier::complete_tx::bytes [%0], [%1, " POINT "], [%7]" OFFSETS ";"
                 :: "r"(shared_address(tile) + p.offset), "l"(&map), "r"(p.at[0] + b * p.step[0]),
                    "r"(p.at[1] + b * p.step[1]), "r"(p.at[2] + b * p.step[2]),
                    "r"(p.at[3] + b * p.step[3]), "r"(p.at[4] + b * p.step[4]), "r"(bar),
                    "h"((short)0), "h"((short)0), "h"((short)0) : "memory");
    int done = 0;
    for (int tries = 0; tries < 5000 && !done; ++tries)
      asm volatile("{.reg .pred p;\n\tmbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                   "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
  }
}

extern "C" __global__ void count_stores(const __grid_constant__ CUtensorMap map, Point p)
{
  if (threadIdx.x == 0) {
    int b = blockIdx.x;
#ifdef REDUCE
    asm volatile("cp.reduce.async.bulk.tensor." DIMENSIONS(RANK) ".global.shared::cta." REDUCE "."
#else
    asm volatile("cp.async.bulk.tensor." DIMENSIONS(RANK) ".global.shared::cta."
#endif
                 STORE_MODE ".bulk_group [%1, " POINT "], [%0];"
                 :: "r"(shared_address(tile) + p.offset), "l"(&map), "r"(p.at[0] + b * p.step[0]),
                    "r"(p.at[1] + b * p.step[1]), "r"(p.at[2] + b * p.step[2]),
                    "r"(p.at[3] + b * p.step[3]), "r"(p.at[4] + b * p.step[4]) : "memory");
    asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// A store, or with -D REDUCE a reduction.
extern "C" __global__ void store(const __grid_constant__ CUtensorMap map, const int *at,
                                 const unsigned *initial, int words)
{
  fill(initial, words);
  if (threadIdx.x == 0) {
#ifdef REDUCE
    asm volatile("cp.reduce.async.bulk.tensor." DIMENSIONS(RANK) ".global.shared::cta." REDUCE "."
                 STORE_MODE ".bulk_group [%1, " POINT "], [%0];"
#else
    asm volatile("cp.async.bulk.tensor." DIMENSIONS(RANK) ".global.shared::cta." STORE_MODE
                 ".bulk_group [%1, " POINT "], [%0];"
#endif
                 :: "r"(shared_address(tile) + at[5]), "l"(&map), "r"(at[0]), "r"(at[1]),
                    "r"(at[2]), "r"(at[3]), "r"(at[4]) : "memory");
    asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
  }
}
