// The types of numbers of PyTorch, and those in which they are added up on a GPU.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace c10 {
using Half = __half;
using BFloat16 = __nv_bfloat16;
}  // namespace c10
namespace at {
using c10::BFloat16;
using c10::Half;
template <typename T, bool on_gpu>
struct AccumulateType {
  using type = T;
};
template <bool on_gpu>
struct AccumulateType<Half, on_gpu> {
  using type = float;
};
template <bool on_gpu>
struct AccumulateType<BFloat16, on_gpu> {
  using type = float;
};
template <typename T, bool on_gpu>
using acc_type = typename AccumulateType<T, on_gpu>::type;
}  // namespace at
