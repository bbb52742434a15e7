// Messages between two blocks of a cluster, for benchmarks/microbenchmarks.py: clocks of one way,
// of many to and fro, in all clusters of the device at once.
//
// A message is an arrival at an mbarrier of the other block, `.release` or `.relaxed`, or bytes
// that st.async, red.async or a bulk copy of shared memory writes there and completes at it. An
// own arrival is a `.relaxed` one by another warp of the same block, for comparison.
#include <numeric>
#include <vector>

#include "clusters.cuh"

constexpr size_t SHARED_BYTES = 130 * 1024;
constexpr int TRIPS = 64;

extern __shared__ __align__(1024) u32 words[];

enum Message { OWN_ARRIVAL, RELEASED_ARRIVAL, RELAXED_ARRIVAL, STORE, REDUCTION, BULK_COPY };
constexpr const char* MESSAGES[] = {"own arrival", "released arrival", "relaxed arrival",
                                    "st.async",    "red.async",        "bulk copy"};

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

template <Message MESSAGE>
__global__ void to_and_fro(float* out, u32 bytes, u32 target) {
  __shared__ __align__(16) u64 barrier_words[2];
  u32 rank = cluster_rank(), base = shared_address(words), warp = threadIdx.x / 32;
  constexpr bool is_own = MESSAGE == OWN_ARRIVAL;
  u32 barrier = shared_address(&barrier_words[is_own ? warp : 0]);
  if (threadIdx.x % 32 == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::
                     "r"(shared_address(&barrier_words[warp]))
                 : "memory");
  __syncthreads();
  cluster_sync();
  u32 other = rank == 0 ? target : 0;
  u32 other_barrier = mapped(barrier, other), destination = mapped(base + 65536, other);
  if (is_own)
    other_barrier = shared_address(&barrier_words[1 - warp]);
  u64 begin = 0, end = 0;
  u32 phase = 0;
  bool is_first = is_own ? warp == 0 : rank == 0;
  bool takes_part = is_own ? rank == 0 : warp == 0 && (rank == 0 || rank == target);
  if (threadIdx.x % 32 == 0 && takes_part) {
    for (int round = 0; round < 2; ++round) {
      begin = clock_of_sm();
      for (int i = 0; i < TRIPS; ++i) {
        for (int way = 0; way < 2; ++way) {
          bool sends = (way == 0) == is_first;
          if (sends) {
            if constexpr (MESSAGE == OWN_ARRIVAL)
              asm volatile("{ .reg .b64 s; mbarrier.arrive.relaxed.cta.shared::cta.b64 s, [%0]; }" ::
                               "r"(other_barrier)
                           : "memory");
            if constexpr (MESSAGE == RELEASED_ARRIVAL)
              asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                               other_barrier)
                           : "memory");
            if constexpr (MESSAGE == RELAXED_ARRIVAL)
              asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                               other_barrier)
                           : "memory");
            if constexpr (MESSAGE == STORE)
              asm volatile(
                  "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::
                      "r"(destination),
                  "r"(i), "r"(other_barrier)
                  : "memory");
            if constexpr (MESSAGE == REDUCTION)
              asm volatile(
                  "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
                  "[%0], %1, [%2];" ::"r"(destination),
                  "r"(i), "r"(other_barrier)
                  : "memory");
            if constexpr (MESSAGE == BULK_COPY)
              asm volatile(
                  "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                  "[%0], [%1], %2, [%3];" ::"r"(destination),
                  "r"(base), "r"(bytes), "r"(other_barrier)
                  : "memory");
          } else {
            if constexpr (MESSAGE >= STORE)
              asm volatile(
                  "{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(
                      barrier),
                  "r"(MESSAGE == BULK_COPY ? bytes : 4)
                  : "memory");
            wait(barrier, phase);
            phase ^= 1;
          }
        }
      }
      end = clock_of_sm();
    }
    if (rank == 0 && is_first)
      out[cluster_number()] = float(end - begin) / (2 * TRIPS);
  }
  cluster_sync();
}

template <Message MESSAGE>
void measure() {
  float* out = device_memory<float>(4096);
  u32 bytes = 16, target = 1;
  for (int size : {2, 4, 8}) {
    const void* kernel = reinterpret_cast<const void*>(to_and_fro<MESSAGE>);
    ClusterKernel launched(kernel, size, 64, SHARED_BYTES);
    launched.allow();
    int clusters = launched.most_active();
    void* arguments[] = {&out, &bytes, &target};
    launched.run(clusters, arguments);
    std::vector<float> clocks(clusters);
    CHECK(cudaMemcpy(clocks.data(), out, clusters * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = std::accumulate(clocks.begin(), clocks.end(), 0.0);
    std::printf("%s,%d,%.2f\n", MESSAGES[MESSAGE], size, sum / clusters);
  }
}

int main() {
  std::printf("message,blocks,clocks\n");
  measure<OWN_ARRIVAL>();
  measure<RELEASED_ARRIVAL>();
  measure<RELAXED_ARRIVAL>();
  measure<STORE>();
  measure<REDUCTION>();
  measure<BULK_COPY>();
  return 0;
}
