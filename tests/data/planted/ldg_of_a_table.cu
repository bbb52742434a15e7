// A table in global memory that each block fills for itself, then reads by __ldg.
//
// launch: --grid 2 --block 64 --arg in:f32[128] --arg out:f32[128]
// beyond compute-sanitizer: racecheck follows shared memory only
__device__ float table[2][64];
__global__ void lookup(const float* a, float* b) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  table[blockIdx.x][63 - t] = a[i];  // BUG racecheck: stale read
  __syncthreads();
#ifdef FIXED
  b[i] = table[blockIdx.x][t];
#else
  b[i] = __ldg(&table[blockIdx.x][t]);  // BUG racecheck: stale read
#endif
}
