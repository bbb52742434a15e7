// Holds back everything launched after it until the host releases it.
//
// The events and the kernel between them are then all queued before the first one starts, so the
// time contains no gaps caused by the host. `flags` is host memory that the GPU has mapped: the host
// sets flags[0] to release; flags[1] reports that it did not within `limit_ns`, which happens when
// the host waits for the work that is held back.

__device__ unsigned long long now_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void hold(volatile unsigned* flags, unsigned long long limit_ns) {
  unsigned long long start = now_ns();

  while (flags[0] == 0) {
    if (now_ns() - start > limit_ns) {
      flags[1] = 1;
      return;
    }
  }
}
