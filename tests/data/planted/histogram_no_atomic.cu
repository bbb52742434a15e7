// A histogram whose threads count in global memory without atomics.
//
// launch: --grid 2 --block 128 --arg in:i32[256]=randint:0:16 --arg inout:i32[16]=zeros
__global__ void histogram(const int* a, int* counts) {
  int bin = a[blockIdx.x * blockDim.x + threadIdx.x];
#ifdef FIXED
  atomicAdd(&counts[bin], 1);
#else
  counts[bin] += 1;  // BUG racecheck: WAR; racecheck: WAW
#endif
}
