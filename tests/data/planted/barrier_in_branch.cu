// A barrier inside a branch that only the even threads take, and another in the other branch: the
// two halves of a warp wait at different barriers.
//
// launch: --grid 1 --block 64 --arg out:i32[64]
__global__ void halves(int* out) {
  __shared__ int seen[64];
  int t = threadIdx.x;
  seen[t] = t;
#ifdef FIXED
  __syncthreads();
  out[t] = t % 2 ? seen[63 - t] + 1 : seen[63 - t];
#else
  if (t % 2 == 0) {
    __syncthreads();  // BUG synccheck: divergent barrier
    out[t] = seen[63 - t];
  } else {
    __syncthreads();  // BUG synccheck: divergent barrier
    out[t] = seen[63 - t] + 1;
  }
#endif
}
