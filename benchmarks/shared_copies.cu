// Asynchronous copies of a warp to rows of shared memory, for benchmarks/microbenchmarks.py, which
// counts their wavefronts.
//
// The lanes copy `bytes` each to rows of `lanes_per_row`, `pitch` bytes apart, from lines of their
// own for each row; the first row begins `offset` bytes after a multiple of 1024.
#include "device.cuh"

constexpr int SHARED_BYTES = 20000;

template <int BYTES, bool BYPASSES_L1>
__global__ void copies(const char* in, u32 lanes_per_row, u32 pitch, u32 offset, u32* sink) {
  extern __shared__ __align__(1024) char shared[];
  u32 lane = threadIdx.x % 32, row = lane / lanes_per_row, column = lane % lanes_per_row;
  u32 to = u32(__cvta_generic_to_shared(shared)) + row * pitch + column * BYTES + offset;
  const char* from = in + row * 4096 + column * BYTES;
#pragma unroll 1
  for (int i = 0; i < 64; ++i) {
    if (BYPASSES_L1)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                   : "memory");
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  if (shared[threadIdx.x] == 77 && pitch == 3)
    *sink = 1;
}

const char* in;
u32* sink;

template <int BYTES, bool BYPASSES_L1>
void run(u32 lanes_per_row, u32 padding, u32 offset = 0) {
  u32 pitch = lanes_per_row * BYTES + padding;
  copies<BYTES, BYPASSES_L1><<<1, 32, SHARED_BYTES>>>(in, lanes_per_row, pitch, offset, sink);
  finish();
  std::printf("copies,%d,%d,%u,%u,%u\n", BYPASSES_L1, BYTES, lanes_per_row, pitch, offset);
}

int main() {
  in = static_cast<const char*>(random_memory(1 << 20));
  sink = device_memory<u32>(1);
  std::printf("kernel,bypasses_l1,bytes,lanes_per_row,pitch,offset\n");
  for (u32 lanes : {32, 16, 8, 4, 2})
    for (u32 padding : {0, 16, 32, 48, 64})
      run<16, true>(lanes, padding);
  for (u32 lanes : {8, 4})
    for (u32 offset : {16, 64})
      run<16, true>(lanes, 0, offset);
  for (u32 lanes : {8, 4})
    for (u32 padding : {0, 16, 128})
      run<16, false>(lanes, padding);
  for (u32 lanes : {32, 8})
    for (u32 padding : {0, 16, 32})
      run<8, false>(lanes, padding);
  for (u32 lanes : {32, 8, 1})
    for (u32 padding : {0, 4, 96})
      run<4, false>(lanes, padding);
  return 0;
}
