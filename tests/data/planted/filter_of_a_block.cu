// Each block keeps its elements above a bound, in their order, by a scan of its warps' ballots: data
// decides how much of each part of the output is written. The counter of the last block is forgotten.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256] --arg out:i32[4] --arg f32=0.5
// unplaced: initcheck: never written
__global__ void keep(const float* a, float* b, int* kept, float bound) {
  __shared__ int warps[2];
  __shared__ float s[64];
  int t = threadIdx.x, warp = t / 32, first = blockIdx.x * blockDim.x;
  float x = a[first + t];
  unsigned votes = __ballot_sync(0xffffffff, x > bound);
  if (t % 32 == 0) warps[warp] = __popc(votes);
  __syncthreads();
  int place = __popc(votes & ((1u << t % 32) - 1)) + (warp ? warps[0] : 0);
  if (x > bound) s[place] = x;
  __syncthreads();
  for (int j = t; j < warps[0] + warps[1]; j += blockDim.x) b[first + j] = s[j];
#ifdef FIXED
  if (t == 0) kept[blockIdx.x] = warps[0] + warps[1];
#else
  if (t == 0 && blockIdx.x + 1 < gridDim.x) kept[blockIdx.x] = warps[0] + warps[1];
#endif
}
