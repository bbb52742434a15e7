// A thread writes one element behind what it has allocated on the heap.
//
// launch: --grid 2 --block 64 --arg out:i32[128]
__global__ void sums(int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = 4 + threadIdx.x % 5;
  int* own = new int[n];
  if (!own) return;
#ifdef FIXED
  for (int k = 0; k < n; k++) own[k] = i * k;
#else
  for (int k = 0; k <= n; k++) own[k] = i * k;  // BUG memcheck: out of bounds
#endif
  int sum = 0;
  for (int k = 0; k < n; k++) sum += own[(k + i) % n];
  out[i] = sum;
  delete[] own;
}
