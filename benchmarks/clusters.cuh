// What the micro-benchmarks of clusters share: addresses of other blocks' shared memory, launches.
#pragma once

#include "device.cuh"

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ u32 cluster_size() {
  u32 size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

__device__ __forceinline__ u32 cluster_number() {
  u32 number;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(number));
  return number;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The address that a variable of this block has in another block of the cluster.
__device__ __forceinline__ u32 mapped(u32 address, u32 rank) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

template <class T>
__device__ __forceinline__ u32 shared_address(const T* variable) {
  return u32(__cvta_generic_to_shared(variable));
}

// A kernel in clusters, of blocks with `shared_bytes` of dynamic shared memory.
struct ClusterKernel {
  const void* function;
  int size;  // blocks of a cluster
  int threads;
  size_t shared_bytes;
  cudaLaunchAttribute cluster{};

  ClusterKernel(const void* function, int size, int threads, size_t shared_bytes)
      : function(function), size(size), threads(threads), shared_bytes(shared_bytes) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(size), 1, 1};
  }

  // For the largest one of the program.
  void allow() const {
    CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(shared_bytes)));
    CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }

  cudaLaunchConfig_t launch_of(int clusters) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(clusters * size);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return config;
  }

  // Clusters that the device holds at once; 0 where it holds none.
  int most_active() {
    int count = 0;
    cudaLaunchConfig_t config = launch_of(16);
    if (cudaOccupancyMaxActiveClusters(&count, function, &config) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    return count;
  }

  void run(int clusters, void** arguments) {
    cudaLaunchConfig_t config = launch_of(clusters);
    CHECK(cudaLaunchKernelExC(&config, function, arguments));
    finish();
  }
};
