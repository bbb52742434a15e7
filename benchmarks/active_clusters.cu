// The clusters that a device holds at once, for benchmarks/microbenchmarks.py, and which SMs form
// a GPC: those on which blocks of one cluster ran (CUDA C++ Programming Guide, "Thread Block
// Clusters"). GPCs are printed as messages.
#include <map>
#include <numeric>
#include <vector>

#include "clusters.cuh"

constexpr size_t KIB = 1024;
constexpr size_t WHOLE_SM_BYTES = 200 * KIB;  // of shared memory: one block on each SM
constexpr int ROUNDS = 12;

__global__ void places(u32* out) {
  if (threadIdx.x == 0)
    out[blockIdx.x] = multiprocessor();
  cluster_sync();
  if (threadIdx.x == 0) {
    u64 begin = clock_of_sm();
    while (clock_of_sm() - begin < 200000) {
    }
  }
  cluster_sync();
}

// Sets of SMs, which are joined.
struct Groups {
  std::vector<int> parent;

  explicit Groups(int count) : parent(count) { std::iota(parent.begin(), parent.end(), 0); }

  int root(int i) const {
    while (parent[i] != i)
      i = parent[i];
    return i;
  }
};

int main() {
  const void* kernel = reinterpret_cast<const void*>(places);
  ClusterKernel(kernel, 1, 32, WHOLE_SM_BYTES).allow();
  std::printf("bytes,threads,cluster,active\n");
  for (size_t bytes : {0 * KIB, 50 * KIB, 100 * KIB, 200 * KIB})
    for (int threads : {32, 512, 1024})
      for (int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16})
        std::printf("%zu,%d,%d,%d\n", bytes, threads, size,
                    ClusterKernel(kernel, size, threads, bytes).most_active());
  u32* out = device_memory<u32>(4096);
  int sms = multiprocessors();
  Groups gpcs(sms);
  for (int round = 0; round < ROUNDS; ++round)
    for (int size : {16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2}) {
      ClusterKernel launched(kernel, size, 32, WHOLE_SM_BYTES);
      int clusters = launched.most_active() * 3;
      if (clusters == 0)
        continue;
      void* arguments[] = {&out};
      launched.run(clusters, arguments);
      std::vector<u32> found(clusters * size);
      CHECK(cudaMemcpy(found.data(), out, found.size() * sizeof(u32), cudaMemcpyDeviceToHost));
      for (int block = 0; block < clusters * size; ++block)
        gpcs.parent[gpcs.root(found[block])] = gpcs.root(found[block / size * size]);
    }
  std::map<int, std::vector<int>> members;
  for (int sm = 0; sm < sms; ++sm)
    members[gpcs.root(sm)].push_back(sm);
  for (auto& root_and_sms : members) {
    std::fprintf(stderr, "GPC of %zu SMs:", root_and_sms.second.size());
    for (int sm : root_and_sms.second)
      std::fprintf(stderr, " %d", sm);
    std::fprintf(stderr, "\n");
  }
  return 0;
}
