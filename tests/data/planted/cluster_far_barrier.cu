// A bulk copy into the own block whose bytes are to complete at a barrier of the other block of the
// cluster, which waits there forever.
//
// launch: --grid 2 --block 32 --arg in:i32[32] --arg out:i32[32]
// beyond compute-sanitizer: it runs the launch, which never ends
__device__ bool is_over(unsigned barrier) {
  unsigned over;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"  // BUG synccheck: endless wait
               " selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(barrier) : "memory");
  return over;
}

__device__ unsigned of_rank(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__global__ void __cluster_dims__(2) handed_on(const int* a, int* b) {
  __shared__ __align__(16) int s[32];
  __shared__ unsigned long long word;
  unsigned to = (unsigned)__cvta_generic_to_shared(s);
  unsigned barrier = (unsigned)__cvta_generic_to_shared(&word);
  unsigned rank = __clusterRelativeBlockRank();
  int t = threadIdx.x;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(barrier) : "memory");
  }
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#ifdef FIXED
  to = of_rank(to, 1);
#endif
  if (t == 0 && rank == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(to), "l"(a), "r"(of_rank(barrier, 1)) : "memory");  // BUG memcheck: barrier in another block
  if (rank == 1) {
    while (!is_over(barrier)) {
    }
    b[t] = s[t];
  }
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
