// Coalescing 5 and 6: the threads of a warp read words at random positions in an array.
//
// b[i] = a[index[i]], float32, with random indices. The indices themselves are read coalesced.
//
// What to expect: the 32 words are in about 32 lines. If whole lines are moved, 128 / (32 * 128) of
// the bytes are used; if sectors of 32 bytes are moved, 128 / (32 * 32).
//
// One lesson says that loads that bypass the L1 (--cache global) use the bus less well. By its own
// formulas the opposite is true: N * 32 bytes are moved instead of N * 128, and the share that is
// used is four times as large. On current GPUs L1 also fetches single sectors, and both are alike.

extern "C" __global__ void scattered(const float* a, const int* index, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int j = index[i];
    float value = LOAD(a + j);
    b[i] = value;
  }
}
