// A tile that a bulk copy stores, and that threads fill again before the copy has read it.
//
// launch: --grid 2 --block 64 --arg in:f32[256] --arg out:f32[256]
__global__ void doubled(const float* a, float* b) {
  __shared__ __align__(128) float s[64];
  unsigned from = (unsigned)__cvta_generic_to_shared(s);
  int t = threadIdx.x;
  for (int part = 0; part < 2; ++part) {
    int first = (2 * blockIdx.x + part) * blockDim.x;
    s[t] = 2 * a[first + t];  // BUG racecheck: WAR
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(b + first), "r"(from) : "memory");  // BUG racecheck: WAR
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifdef FIXED
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    }
    __syncthreads();
  }
}
