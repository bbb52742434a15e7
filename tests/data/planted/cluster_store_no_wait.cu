// A block reads what the other block of its cluster sends by st.async, without waiting at the
// mbarrier where the bytes arrive.
//
// launch: --grid 4 --block 64 --arg in:i32[256] --arg out:i32[256]
__device__ bool is_over(unsigned barrier) {
  unsigned over;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
               " selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(barrier) : "memory");
  return over;
}

__device__ unsigned of_rank(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__global__ void __cluster_dims__(2) swapped(const int* a, int* b) {
  __shared__ int s[64];
  __shared__ unsigned long long word;
  unsigned barrier = (unsigned)__cvta_generic_to_shared(&word);
  unsigned other = __clusterRelativeBlockRank() ^ 1;
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  unsigned to = (unsigned)__cvta_generic_to_shared(s + t);
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(barrier) : "memory");
  }
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(of_rank(to, other)), "r"(a[i]), "r"(of_rank(barrier, other)) : "memory");  // BUG racecheck: RAW
#ifdef FIXED
  while (!is_over(barrier)) {
  }
#else
  __syncthreads();
#endif
  b[i] = s[t];  // BUG racecheck: RAW
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
