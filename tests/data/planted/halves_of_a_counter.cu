// A pair of 32-bit counters in one word of 64 bits: counted one by one, read and reset as a whole.
//
// launch: --grid 4 --block 32 --arg in:i32[128]=randint:0:9 --arg inout:u64[1]=zeros --arg out:u64[4]
// beyond compute-sanitizer: racecheck follows shared memory only
__global__ void count(const int* a, unsigned long long* both, unsigned long long* seen) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  atomicAdd(both, 1ull << 32 * (a[i] & 1));
#else
  atomicAdd((unsigned*)both + (a[i] & 1), 1u);  // BUG racecheck: WAW
#endif
  if (threadIdx.x == 0) seen[blockIdx.x] = atomicOr(both, 0ull);  // BUG racecheck: WAW
}
