// Keeps the elements above a bound, in any order: data decides how many elements of the output are
// written. The place is drawn without an atomic.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256] --arg inout:i32[1]=zeros --arg f32=0.5
// beyond compute-sanitizer: racecheck follows shared memory only
__global__ void keep(const float* a, float* b, int* kept, float bound) {
  float x = a[blockIdx.x * blockDim.x + threadIdx.x];
  if (x > bound) {
#ifdef FIXED
    int place = atomicAdd(kept, 1);
#else
    int place = *kept;  // BUG racecheck: WAR
    *kept = place + 1;  // BUG racecheck: WAR; racecheck: WAW
#endif
    b[place] = x;  // BUG racecheck: WAW
  }
}
