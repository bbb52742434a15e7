// Memory that malloc gives is read before anything was written there, also where it held something
// that was freed.
//
// launch: --grid 2 --block 64 --arg out:i32[128]
__global__ void reuse(int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int* first = (int*)malloc(32);
  if (!first) return;
  first[threadIdx.x % 8] = i;
  free(first);
  int* second = (int*)malloc(32);
  if (!second) return;
#ifdef FIXED
  second[threadIdx.x % 8] = i;
#endif
  out[i] = second[threadIdx.x % 8];  // BUG initcheck: uninitialized read
  free(second);
}
