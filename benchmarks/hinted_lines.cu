// What the L1 keeps of accesses with hints, for benchmarks/microbenchmarks.py, which counts hits.
//
// `hinted`: a block of 1024 threads on each SM reads `kept` lines, accesses `beside` others with a
// hint, and reads the first ones again. With `again`, it reads those others instead. It does so
// four times, with other lines each time.
#include "device.cuh"

constexpr int THREADS = 1024, WORDS = 32;  // of a line
constexpr int ROUNDS = 4;

enum Hint {
  LOAD_CA,
  LOAD_CS,
  LOAD_LU,
  LOAD_CG,
  LOAD_NC,
  LOAD_EVICT_FIRST,
  LOAD_NO_ALLOCATE,
  STORE_WB,
  STORE_CS,
  STORE_CG,
  STORE_WT,
  STORE_EVICT_FIRST,
  STORE_NO_ALLOCATE,
  HINTS
};
const char* const NAMES[] = {
    "ld.ca", "ld.cs", "ld.lu", "ld.cg", "ld.nc", "ld.L1::evict_first", "ld.L1::no_allocate",
    "st.wb", "st.cs", "st.cg", "st.wt", "st.L1::evict_first", "st.L1::no_allocate"};

#define LOAD(words)                                                                               \
  {                                                                                               \
    u32 value;                                                                                    \
    asm volatile("ld.global" words ".u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");          \
    return value;                                                                                 \
  }
#define STORE(words)                                                                              \
  {                                                                                               \
    asm volatile("st.global" words ".u32 [%0], %1;" ::"l"(at), "r"(sum) : "memory");              \
    return 0;                                                                                     \
  }

template <int HINT>
__device__ __forceinline__ u32 touch(u32* at, u32 sum) {
  if (HINT == LOAD_CS) LOAD(".cs")
  if (HINT == LOAD_LU) LOAD(".lu")
  if (HINT == LOAD_CG) LOAD(".cg")
  if (HINT == LOAD_NC) LOAD(".nc")
  if (HINT == LOAD_EVICT_FIRST) LOAD(".L1::evict_first")
  if (HINT == LOAD_NO_ALLOCATE) LOAD(".L1::no_allocate")
  if (HINT == STORE_WB) STORE("")
  if (HINT == STORE_CS) STORE(".cs")
  if (HINT == STORE_CG) STORE(".cg")
  if (HINT == STORE_WT) STORE(".wt")
  if (HINT == STORE_EVICT_FIRST) STORE(".L1::evict_first")
  if (HINT == STORE_NO_ALLOCATE) STORE(".L1::no_allocate")
  LOAD(".ca")
}

template <int HINT>
__global__ void __launch_bounds__(THREADS) hinted(u32* lines, int kept, int beside, int again) {
  u32 sum = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    u64 first = (u64(round) * gridDim.x + blockIdx.x) * (kept + beside) * WORDS;
    u32 *own = lines + first, *others = own + u64(kept) * WORDS;
    for (int i = threadIdx.x; i < kept * WORDS; i += THREADS)
      sum ^= touch<LOAD_CA>(own + i, 0);
    __syncthreads();
    for (int i = threadIdx.x; i < beside * WORDS; i += THREADS)
      sum ^= touch<HINT>(others + i, sum);
    __syncthreads();
    u32* from = again ? others : own;
    for (int i = threadIdx.x; i < (again ? beside : kept) * WORDS; i += THREADS)
      sum ^= touch<LOAD_CA>(from + i, 0);
    __syncthreads();
  }
  if (sum == 0x12345678u)
    *lines = sum;
}

template <int HINT>
void measure(u32* words) {
  int sms = multiprocessors();
  for (int beside : {256, 1024, 1536})
    for (int again : {0, 1}) {
      hinted<HINT><<<sms, THREADS>>>(words, 1024, beside, again);
      finish();
      std::printf("hinted,%s,1024,%d,%d\n", NAMES[HINT], beside, again);
    }
  if constexpr (HINT + 1 < HINTS)
    measure<HINT + 1>(words);
}

int main() {
  auto* words = static_cast<u32*>(random_memory(1ull << 30));
  std::printf("kernel,hint,kept,beside,again\n");
  measure<0>(words);
  return 0;
}
