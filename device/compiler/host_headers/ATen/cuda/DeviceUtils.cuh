// The functions of PyTorch by which the lanes of a warp exchange values.
#pragma once
template <typename T>
__device__ T WARP_SHFL(T value, int lane, int width = 32, unsigned int mask = 0xffffffff) {
  return __shfl_sync(mask, value, lane, width);
}
template <typename T>
__device__ T WARP_SHFL_XOR(T value, int lanes, int width = 32, unsigned int mask = 0xffffffff) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
template <typename T>
__device__ T WARP_SHFL_UP(T value, unsigned int by, int width = 32,
                          unsigned int mask = 0xffffffff) {
  return __shfl_up_sync(mask, value, by, width);
}
template <typename T>
__device__ T WARP_SHFL_DOWN(T value, unsigned int by, int width = 32,
                            unsigned int mask = 0xffffffff) {
  return __shfl_down_sync(mask, value, by, width);
}
__device__ inline unsigned int WARP_BALLOT(int predicate, unsigned int mask = 0xffffffff) {
  return __ballot_sync(mask, predicate);
}
