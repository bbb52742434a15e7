// A tile that threads fill, and that a bulk copy then stores, without the fence that makes what
// threads stored visible to the copy engine.
//
// launch: --grid 2 --block 64 --arg in:f32[128] --arg out:f32[128]
// beyond compute-sanitizer: racecheck knows no proxies
__global__ void doubled(const float* a, float* b) {
  __shared__ __align__(128) float s[64];
  unsigned from = (unsigned)__cvta_generic_to_shared(s);
  int t = threadIdx.x, first = blockIdx.x * blockDim.x;
  s[t] = 2 * a[first + t];  // BUG racecheck: missing proxy fence
#ifdef FIXED
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(b + first), "r"(from) : "memory");  // BUG racecheck: missing proxy fence
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
