// A counter for the whole grid that is counted by an atomic for the threads of one block only:
// between blocks it may lose counts.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg inout:u32[1]=zeros
// beyond compute-sanitizer: racecheck follows shared memory only
__global__ void count(const float* a, unsigned* above) {
#ifdef FIXED
  if (a[blockIdx.x * blockDim.x + threadIdx.x] > 0.25f) atomicAdd(above, 1u);
#else
  if (a[blockIdx.x * blockDim.x + threadIdx.x] > 0.25f)
    atomicAdd_block(above, 1u);  // BUG racecheck: WAW
#endif
}
