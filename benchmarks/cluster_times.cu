// Barriers of clusters, and accesses to the shared memory of other blocks, for
// benchmarks/microbenchmarks.py: clocks of one of many in a row, with clusters on the whole
// device.
//
// Barriers have `.release` or `.relaxed` arrivals; the mean of all blocks. A load or an atomic is
// one of a chase by one thread, from a block of each cluster to another one; the mean of pairs of
// blocks. The fastest and the slowest of these, and accesses to the own block, are printed as
// messages.
#include <algorithm>
#include <numeric>
#include <vector>

#include "clusters.cuh"

constexpr size_t SHARED_BYTES = 120 * 1024;  // one block on each SM
constexpr u32 CHASED_WORDS = 1024, CHASED_STEP = 419, CHASED = 256;
constexpr int BARRIERS = 128;

extern __shared__ __align__(1024) u32 words[];

enum Access { LOAD, ATOMIC, OWN_LOAD, OWN_ATOMIC };  // own ones by .shared::cta
constexpr const char* ACCESSES[] = {"load", "atomic", "load of .shared::cta",
                                    "atomic of .shared::cta"};

struct Chase {
  float clocks;
  u32 from, to;  // SMs
  u32 correct;
};

// The thread 0 of rank `actor` follows addresses in the shared memory of rank `target`.
__global__ void chase(Chase* out, int access, u32 actor, u32 target) {
  u32 base = shared_address(words), rank = cluster_rank();
  for (u32 i = threadIdx.x; i < CHASED_WORDS; i += blockDim.x)
    words[i] = mapped(base, access >= OWN_LOAD ? rank : target) +
               4 * ((i + CHASED_STEP) % CHASED_WORDS);
  __shared__ u32 sm;
  if (threadIdx.x == 0)
    sm = multiprocessor();
  cluster_sync();
  if (rank == actor && threadIdx.x == 0) {
    u32 to;
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(to)
                 : "r"(mapped(shared_address(&sm), target)));
    u32 at = mapped(base, target);
    u64 begin = 0, end = 0;
    for (int round = 0; round < 2; ++round) {  // the first one warms the instruction cache
      at = mapped(base, access >= OWN_LOAD ? rank : target);
      begin = clock_of_sm();
      if (access == LOAD)
        for (int i = 0; i < CHASED; ++i)
          asm volatile("ld.shared::cluster.u32 %0, [%0];" : "+r"(at)::"memory");
      if (access == ATOMIC)
        for (int i = 0; i < CHASED; ++i)
          asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%0], 0;"
                       : "+r"(at)::"memory");
      if (access == OWN_LOAD)
        for (int i = 0; i < CHASED; ++i)
          asm volatile("ld.shared::cta.u32 %0, [%0];" : "+r"(at)::"memory");
      if (access == OWN_ATOMIC)
        for (int i = 0; i < CHASED; ++i)
          asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%0], 0;" : "+r"(at)::"memory");
      end = clock_of_sm();
    }
    u32 wanted = mapped(base, access >= OWN_LOAD ? rank : target) +
                 4 * (CHASED * CHASED_STEP % CHASED_WORDS);
    out[cluster_number()] = {float(end - begin) / CHASED, multiprocessor(), to, at == wanted};
  }
  cluster_sync();
}

template <bool RELAXED>
__global__ void __launch_bounds__(1024) barriers(float* out) {
  u64 begin = 0, end = 0;
  for (int round = 0; round < 2; ++round) {
    cluster_sync();
    begin = clock_of_sm();
    for (int i = 0; i < BARRIERS; ++i) {
      if (RELAXED)
        asm volatile(
            "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
      else
        cluster_sync();
    }
    end = clock_of_sm();
  }
  if (threadIdx.x == 0)
    out[blockIdx.x] = float(end - begin) / BARRIERS;
}

void measure_barriers(const char* name, const void* kernel) {
  float* out = device_memory<float>(4096);
  for (int size : {2, 4, 8, 16})
    for (int threads : {32, 256, 1024}) {
      ClusterKernel launched(kernel, size, threads, SHARED_BYTES);
      launched.allow();
      int clusters = launched.most_active();
      if (clusters == 0)
        continue;
      void* arguments[] = {&out};
      launched.run(clusters, arguments);
      std::vector<float> clocks(clusters * size);
      CHECK(cudaMemcpy(clocks.data(), out, clocks.size() * sizeof(float), cudaMemcpyDeviceToHost));
      double sum = std::accumulate(clocks.begin(), clocks.end(), 0.0);
      std::printf("%s barrier,%d,%d,%.2f\n", name, size, threads, sum / clocks.size());
    }
  CHECK(cudaFree(out));
}

struct Range {
  double mean, least, most;
};

// Chases from one rank to another in each cluster.
Range chase_between(ClusterKernel& launched, int clusters, int access, u32 actor, u32 target) {
  Chase* out = device_memory<Chase>(clusters);
  void* arguments[] = {&out, &access, &actor, &target};
  launched.run(clusters, arguments);
  std::vector<Chase> found(clusters);
  CHECK(cudaMemcpy(found.data(), out, clusters * sizeof(Chase), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(out));
  Range range{0, 1e9, 0};
  for (const Chase& one : found) {
    if (!one.correct)
      std::fprintf(stderr, "wrong address at the end of a chase\n");
    range.mean += one.clocks / clusters;
    range.least = std::min(range.least, double(one.clocks));
    range.most = std::max(range.most, double(one.clocks));
  }
  return range;
}

void measure_chases(Access access) {
  const void* kernel = reinterpret_cast<const void*>(chase);
  for (u32 size : {2, 4, 8, 16}) {
    ClusterKernel launched(kernel, size, 32, SHARED_BYTES);
    launched.allow();
    int clusters = launched.most_active(), pairs = 0;
    if (clusters == 0)
      continue;
    u32 step = size == 16 ? 5 : size == 8 ? 3 : 1;
    Range all{0, 1e9, 0};
    for (u32 actor = 0; actor < size; actor += step)
      for (u32 target = 0; target < size; ++target) {
        if (access >= OWN_LOAD && target != actor)
          continue;
        Range one = chase_between(launched, clusters, access, actor, target);
        if (target == actor) {
          std::fprintf(stderr, "%s of rank %u of %u from itself: %.2f clocks\n", ACCESSES[access],
                       actor, size, one.mean);
          continue;
        }
        all.mean += one.mean;
        all.least = std::min(all.least, one.least);
        all.most = std::max(all.most, one.most);
        ++pairs;
      }
    if (pairs) {
      std::printf("%s,%u,1,%.1f\n", ACCESSES[access], size, all.mean / pairs);
      std::fprintf(stderr, "%s in clusters of %u: %.2f to %.2f clocks\n", ACCESSES[access], size,
                   all.least, all.most);
    }
  }
}

int main() {
  std::printf("what,blocks,threads,clocks\n");
  measure_barriers("relaxed", reinterpret_cast<const void*>(barriers<true>));
  measure_barriers("released", reinterpret_cast<const void*>(barriers<false>));
  for (Access access : {LOAD, ATOMIC, OWN_LOAD, OWN_ATOMIC})
    measure_chases(access);
  return 0;
}
