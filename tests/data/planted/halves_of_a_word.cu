// Two threads publish the halves of a word while a third one polls the whole word: accesses of
// different sizes are not atomic to each other.
//
// launch: --grid 1 --block 96 --arg out:u32[1]
// beyond compute-sanitizer: racecheck does not tell atomic accesses of different sizes apart
#include <cuda/atomic>
#ifdef FIXED
using Part = unsigned;
#else
using Part = unsigned short;
#endif
__global__ void join(unsigned* b) {
  __shared__ unsigned words[2];
  int t = threadIdx.x;
  if (t < 2) words[t] = 0;
  __syncthreads();
  if (t == 0 || t == 32) {
    cuda::atomic_ref<Part, cuda::thread_scope_block> part(((Part*)words)[t / 32]);
    part.store(7, cuda::memory_order_relaxed);  // BUG racecheck: RAW
  }
  if (t == 64) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_block> word(words[0]);
    b[0] = word.load(cuda::memory_order_relaxed);  // BUG racecheck: RAW
  }
}
