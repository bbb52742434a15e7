// Ends a program whose call of the CUDA runtime failed, with the call and the error.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                               \
  do {                                                                                            \
    cudaError_t error_ = (call);                                                                  \
    if (error_ != cudaSuccess) {                                                                  \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                        \
      std::exit(1);                                                                               \
    }                                                                                             \
  } while (0)
