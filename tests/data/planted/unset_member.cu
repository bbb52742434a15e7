// Structures with padding, passed on through shared memory: of every other one a member is never
// set. Copying a structure reads its padding too, which nobody sets and nobody need.
//
// launch: --grid 1 --block 32 --arg in:i32[32] --arg out:u8[256]
struct Item {
  char tag;
  int value;
};
__global__ void pass(const int* a, Item* b) {
  __shared__ Item items[32];
  int t = threadIdx.x;
  items[t].tag = t;
#ifdef FIXED
  items[t].value = a[t];
#else
  if (t % 2) items[t].value = a[t];
#endif
  __syncthreads();
  b[t] = items[31 - t];  // BUG initcheck: uninitialized read
}
