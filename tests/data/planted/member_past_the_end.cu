// A tile in shared memory with its halo beside it, in one structure: the index of the last thread
// leaves the tile for the halo, which lies behind it.
//
// launch: --grid 4 --block 64 --arg in:f32[256] --arg out:f32[256]
// beyond compute-sanitizer: the address is inside the structure
struct Tile {
  float inside[64];
  float halo[2];
};
__global__ void smooth(const float* a, float* b) {
  __shared__ Tile tile;
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  tile.inside[t] = a[i];
  if (t == 0) tile.halo[0] = i ? a[i - 1] : 0;
  if (t == 63) tile.halo[1] = i < 255 ? a[i + 1] : 0;
  __syncthreads();
  float left = t ? tile.inside[t - 1] : tile.halo[0];
#ifdef FIXED
  float right = t < 63 ? tile.inside[t + 1] : tile.halo[1];
#else
  float right = tile.inside[t + 1];  // BUG memcheck: out of bounds
#endif
  b[i] = left + tile.inside[t] + right;
}
