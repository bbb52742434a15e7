// Messages between two blocks of a cluster, for benchmarks/microbenchmarks.py: clocks of one way,
// of many to and fro, in all clusters of the device at once.
//
// A message is an arrival at an mbarrier of the other block, `.release` or `.relaxed`, or bytes
// that st.async or a bulk copy of shared memory stores there and completes at it.
#include <numeric>
#include <vector>

#include "clusters.cuh"

constexpr size_t SHARED_BYTES = 130 * 1024;
constexpr int TRIPS = 64;

extern __shared__ __align__(1024) u32 words[];

enum Message { RELEASED_ARRIVAL, RELAXED_ARRIVAL, STORE, BULK_COPY };
constexpr const char* MESSAGES[] = {"released arrival", "relaxed arrival", "st.async", "bulk copy"};

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
}

__global__ void to_and_fro(float* out, int message, u32 bytes, u32 target) {
  __shared__ __align__(16) u64 barrier_words;
  u32 barrier = shared_address(&barrier_words), rank = cluster_rank();
  u32 base = shared_address(words);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::
                     "r"(barrier)
                 : "memory");
  cluster_sync();
  u32 other = rank == 0 ? target : 0;
  u32 other_barrier = mapped(barrier, other), destination = mapped(base + 65536, other);
  u64 begin = 0, end = 0;
  u32 phase = 0;
  if (threadIdx.x == 0 && (rank == 0 || rank == target)) {
    for (int round = 0; round < 2; ++round) {
      begin = clock_of_sm();
      for (int i = 0; i < TRIPS; ++i) {
        for (int way = 0; way < 2; ++way) {
          bool sends = (way == 0) == (rank == 0);
          if (sends) {
            if (message == RELEASED_ARRIVAL)
              asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                               other_barrier)
                           : "memory");
            if (message == RELAXED_ARRIVAL)
              asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                               other_barrier)
                           : "memory");
            if (message == STORE)
              asm volatile(
                  "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::
                      "r"(destination),
                  "r"(i), "r"(other_barrier)
                  : "memory");
            if (message == BULK_COPY)
              asm volatile(
                  "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                  "[%0], [%1], %2, [%3];" ::"r"(destination),
                  "r"(base), "r"(bytes), "r"(other_barrier)
                  : "memory");
          } else {
            if (message >= STORE)
              asm volatile(
                  "{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(
                      barrier),
                  "r"(message == STORE ? 4 : bytes)
                  : "memory");
            wait(barrier, phase);
            phase ^= 1;
          }
        }
      }
      end = clock_of_sm();
    }
    if (rank == 0)
      out[cluster_number()] = float(end - begin) / (2 * TRIPS);
  }
  cluster_sync();
}

int main() {
  const void* kernel = reinterpret_cast<const void*>(to_and_fro);
  float* out = device_memory<float>(4096);
  u32 bytes = 16, target = 1;
  std::printf("message,blocks,clocks\n");
  for (int message : {RELEASED_ARRIVAL, RELAXED_ARRIVAL, STORE, BULK_COPY})
    for (int size : {2, 4, 8}) {
      ClusterKernel launched(kernel, size, 32, SHARED_BYTES);
      launched.allow();
      int clusters = launched.most_active();
      void* arguments[] = {&out, &message, &bytes, &target};
      launched.run(clusters, arguments);
      std::vector<float> clocks(clusters);
      CHECK(cudaMemcpy(clocks.data(), out, clusters * sizeof(float), cudaMemcpyDeviceToHost));
      double sum = std::accumulate(clocks.begin(), clocks.end(), 0.0);
      std::printf("%s,%d,%.2f\n", MESSAGES[message], size, sum / clusters);
    }
  return 0;
}
