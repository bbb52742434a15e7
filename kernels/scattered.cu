// Coalescing 5 and 6: the threads of a warp read words anywhere in an array.
//
// b[i] = a[index[i]], float32, index drawn at random. The indices themselves come coalesced.
//
// What to expect: the 32 words lie in about 32 lines. Where whole lines move, 128 / (32 * 128) of
// what moves is used; where 32-byte sectors move, 128 / (32 * 32).
//
// A lesson says that loads past the L1 (--cache global) use the bus less well. By its own formulas
// it is the other way round: N * 32 bytes move in place of N * 128, and four times the share is
// used. Today the L1 fetches single sectors too, and the two hardly differ.

extern "C" __global__ void scattered(const float* a, const int* index, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int j = index[i];
    float value = LOAD(a + j);
    b[i] = value;
  }
}
