// The time of launches by events.
#pragma once

#include <algorithm>
#include <vector>

#include "check.cuh"

// The median time of so many launches, nanoseconds.
template <class Launch>
double median_ns(int repeats, Launch launch) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> taken(repeats);
  for (float& ms : taken) {
    CHECK(cudaEventRecord(begin));
    launch();
    CHECK(cudaEventRecord(end));
    CHECK(cudaGetLastError());
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  std::sort(taken.begin(), taken.end());
  return 1e6 * taken[repeats / 2];
}
