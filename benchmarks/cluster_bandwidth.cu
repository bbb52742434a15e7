// Bytes a clock that an SM loads from, or stores to, the shared memory of other blocks, for
// benchmarks/microbenchmarks.py.
//
// `to` names the other block: the next rank, rank 0 of all others, each warp another one, or the
// own block by .shared::cluster or .shared::cta. Lanes access `bytes` each, `stride` accesses
// apart. One cluster runs alone, or as many as the device holds. `wrong` is 1 where a value was
// not as expected.
#include <algorithm>
#include <vector>

#include "clusters.cuh"

constexpr size_t SHARED_BYTES = 120 * 1024;  // one block on each SM
constexpr u32 WORDS = 16384, WARP_WORDS = 512;
constexpr int UNROLLED = 8, TRIPS = 64;

extern __shared__ __align__(1024) u32 words[];

enum Operation { LOAD, STORE };
enum To { NEXT, FIRST, SPREAD, OWN, OWN_CTA };
constexpr const char* OPERATIONS[] = {"load", "store"};
constexpr const char* TARGETS[] = {"next", "first", "spread", "own", "own .shared::cta"};

struct Span {
  u64 begin, end;
  u32 wrong, sm;
};

__host__ __device__ __forceinline__ u32 value_of(u32 rank, u32 word) {
  u32 x = word * 2654435761u ^ rank * 0x9E3779B9u;
  x ^= x >> 15;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  return x;
}

// The exclusive or of the words.
template <int BYTES>
__device__ __forceinline__ u32 load(u32 from) {
  u32 a, b;
  if constexpr (BYTES == 4) {
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(a) : "r"(from));
    return a;
  } else if constexpr (BYTES == 8) {
    asm volatile("ld.shared::cluster.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(from));
    return a ^ b;
  } else {
    u64 low, high;
    asm volatile("ld.relaxed.cluster.shared::cluster.v2.u64 {%0,%1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "r"(from));
    return u32(low) ^ u32(low >> 32) ^ u32(high) ^ u32(high >> 32);
  }
}

template <int BYTES>
__device__ __forceinline__ u32 load_own(u32 from) {
  u32 a, b, c, d;
  if constexpr (BYTES == 4) {
    asm volatile("ld.volatile.shared::cta.u32 %0, [%1];" : "=r"(a) : "r"(from));
    return a;
  } else if constexpr (BYTES == 8) {
    asm volatile("ld.volatile.shared::cta.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(from));
    return a ^ b;
  } else {
    asm volatile("ld.volatile.shared::cta.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(from));
    return a ^ b ^ c ^ d;
  }
}

// The same value to all words.
template <int BYTES>
__device__ __forceinline__ void store(u32 to, u32 value) {
  if constexpr (BYTES == 4)
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(value));
  else if constexpr (BYTES == 8)
    asm volatile("st.shared::cluster.v2.u32 [%0], {%1,%1};" ::"r"(to), "r"(value));
  else
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to), "r"(value));
}

template <int BYTES>
__device__ __forceinline__ void store_own(u32 to, u32 value) {
  if constexpr (BYTES == 4)
    asm volatile("st.volatile.shared::cta.u32 [%0], %1;" ::"r"(to), "r"(value));
  else if constexpr (BYTES == 8)
    asm volatile("st.volatile.shared::cta.v2.u32 [%0], {%1,%1};" ::"r"(to), "r"(value));
  else
    asm volatile("st.volatile.shared::cta.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to), "r"(value));
}

__device__ __forceinline__ u32 target_of(int to, u32 rank, u32 size, u32 warp) {
  return to == NEXT     ? (rank + 1) % size
         : to == FIRST  ? 0
         : to == SPREAD ? (rank + 1 + warp % (size - 1 ? size - 1 : 1)) % size
                        : rank;
}

template <int OPERATION, int BYTES>
__global__ void __launch_bounds__(1024) accesses(Span* out, int to, int stride, int trips) {
  __shared__ u64 first, last;
  __shared__ u32 wrong, scratch;
  u32 base = shared_address(words), rank = cluster_rank(), size = cluster_size();
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (u32 i = threadIdx.x; i < WORDS; i += blockDim.x)
    words[i] = OPERATION == LOAD ? value_of(rank, i) : 0;
  if (threadIdx.x == 0) {
    first = ~0ull;
    last = 0;
    wrong = 0;
  }
  u32 target = target_of(to, rank, size, warp);
  u32 places[UNROLLED];  // words
  for (u32 i = 0; i < UNROLLED; ++i)
    places[i] = (warp * WARP_WORDS + (i * 32 * BYTES / 4 + lane * stride * BYTES / 4)) % WORDS;
  u32 there = mapped(base, target);
  u32 sums[UNROLLED] = {};
  cluster_sync();
  u64 begin = clock_of_sm();
  for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
    for (int i = 0; i < UNROLLED; ++i) {
      u32 place = there + 4 * places[i];
      if constexpr (OPERATION == LOAD) {
        if (to == OWN_CTA)
          sums[i] += load_own<BYTES>(place);
        else
          sums[i] += load<BYTES>(place);
      } else {
        if (to == OWN_CTA)
          store_own<BYTES>(place, trip + 1);
        else
          store<BYTES>(place, trip + 1);
      }
    }
  }
  u64 end = clock_of_sm();
  if (OPERATION == LOAD) {
    u32 sum = 0;
    for (int i = 0; i < UNROLLED; ++i)
      sum += sums[i];
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(shared_address(&scratch)), "r"(sum)
                 : "memory");
    end = clock_of_sm();
  }
  atomicMin(&first, begin);
  atomicMax(&last, end);
  cluster_sync();
  u64 arrived = clock_of_sm();  // of stores
  if (OPERATION == STORE)
    atomicMax(&last, arrived);
  u32 differs = 0;
  for (int i = 0; i < UNROLLED; ++i) {
    if (OPERATION == LOAD) {
      u32 value = 0;
      for (int word = 0; word < BYTES / 4; ++word)
        value ^= value_of(target, places[i] + word);
      differs |= sums[i] != value * trips;
    } else {
      differs |= load<4>(there + 4 * places[i]) != trips;
    }
  }
  if (differs)
    atomicAdd(&wrong, 1);
  cluster_sync();
  if (threadIdx.x == 0)
    out[blockIdx.x] = {first, last, wrong, multiprocessor()};
}

const void* const KERNELS[][3] = {
    {(const void*)accesses<LOAD, 4>, (const void*)accesses<LOAD, 8>,
     (const void*)accesses<LOAD, 16>},
    {(const void*)accesses<STORE, 4>, (const void*)accesses<STORE, 8>,
     (const void*)accesses<STORE, 16>}};

Span* out;

void measure(int operation, int bytes, int size, int to, int stride, int warps) {
  const void* kernel = KERNELS[operation][bytes / 8];
  ClusterKernel launched(kernel, size, warps * 32, SHARED_BYTES);
  launched.allow();
  int most = launched.most_active(), trips = TRIPS;
  for (int clusters : {1, most}) {
    if (clusters == 0)
      continue;
    void* arguments[] = {&out, &to, &stride, &trips};
    for (int round = 0; round < 2; ++round)  // the first one warms the instruction cache
      launched.run(clusters, arguments);
    std::vector<Span> found(clusters * size);
    CHECK(cudaMemcpy(found.data(), out, found.size() * sizeof(Span), cudaMemcpyDeviceToHost));
    double sum = 0, least = 1e9, greatest = 0;
    u32 wrong = 0;
    int blocks = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      if (to == FIRST && i % size == 0)
        continue;
      double rate = double(bytes) * UNROLLED * trips * warps * 32 / (found[i].end - found[i].begin);
      sum += rate;
      least = std::min(least, rate);
      greatest = std::max(greatest, rate);
      wrong |= found[i].wrong;
      ++blocks;
    }
    std::printf("%s,%d,%d,%s,%d,%d,%d,%.3f,%.3f,%.3f,%d\n", OPERATIONS[operation], bytes, size,
                TARGETS[to], stride, warps, clusters, sum / blocks, least, greatest, wrong != 0);
  }
}

int main() {
  out = device_memory<Span>(4096);
  std::printf("operation,bytes,blocks,to,stride,warps,clusters,bytes_per_clock,least,most,wrong\n");
  for (int operation : {LOAD, STORE}) {
    for (int bytes : {4, 8, 16})
      for (int size : {2, 4, 8, 16})
        for (int to : {NEXT, FIRST, SPREAD, OWN, OWN_CTA})
          for (int warps : {1, 2, 4, 8, 16, 32})
            if (to < OWN || size == 2)
              measure(operation, bytes, size, to, 1, warps);
    for (int size : {2, 8})
      for (int stride : {2, 4})
        for (int warps : {1, 8, 32})
          measure(operation, 4, size, NEXT, stride, warps);
  }
  return 0;
}
