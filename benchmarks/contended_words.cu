// Stores and atomics of all warps to one address, or to some: the time that a request adds.
#include "device.cuh"
#include "median_time.cuh"

constexpr int FEW_TRIPS = 16, MANY_TRIPS = 80, REPEATS = 7, BLOCKS_PER_SM = 2, THREADS = 256;
constexpr int FEW_BLOCKS = 2640, MANY_BLOCKS = 10560, STORING_THREADS = 512;

enum class Scope { DEVICE, SYSTEM };
enum class Word { ADD, MAX, AND, EXCHANGE, INCREMENT, SWAP };
const char* WORDS[] = {"add", "max", "and", "exch", "inc", "cas"};

template <Word WORD, Scope SCOPE>
__device__ u32 operate(u32* word, u32 value) {
#define SCOPED(NAME, ...) \
  return SCOPE == Scope::SYSTEM ? atomic##NAME##_system(__VA_ARGS__) : atomic##NAME(__VA_ARGS__)
  if constexpr (WORD == Word::ADD) SCOPED(Add, word, value);
  if constexpr (WORD == Word::MAX) SCOPED(Max, word, value);
  if constexpr (WORD == Word::AND) SCOPED(And, word, value);
  if constexpr (WORD == Word::EXCHANGE) SCOPED(Exch, word, value);
  if constexpr (WORD == Word::INCREMENT) SCOPED(Inc, word, value);
  if constexpr (WORD == Word::SWAP) SCOPED(CAS, word, value - 1, value);
#undef SCOPED
}

// Each thread of the first `lanes` of a warp operates on one word in each trip; `even` lets all
// lanes have the same operand.
template <Word WORD, Scope SCOPE, bool USED>
__global__ void operations(u32* words, u32* sums, u32 lanes, u32 even, int trips) {
  u32 lane = threadIdx.x % 32, number = blockIdx.x * blockDim.x + threadIdx.x;
  if (lane >= lanes) return;
  u32 value = even ? 17 : number, sum = 0;
  for (int trip = 0; trip < trips; ++trip) {
    u32 old = operate<WORD, SCOPE>(words, value + trip);
    if (USED) sum += old;
  }
  if (USED) sums[number] = sum;
}

// The first `lanes` of each warp store to one byte or word, which lies `stride` bytes behind that of
// the warp before.
template <class T>
__global__ void stores(unsigned char* bytes, u32 lanes, u64 stride) {
  u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 < lanes) *reinterpret_cast<T*>(bytes + warp * stride) = T(1);
}

template <Word WORD, Scope SCOPE, bool USED>
void run_operations(u32* words, u32* sums) {
  int blocks = BLOCKS_PER_SM * multiprocessors();
  double requests = double(blocks) * THREADS / 32 * (MANY_TRIPS - FEW_TRIPS);
  for (u32 even : {0u, 1u})
    for (u32 lanes : {1u, 4u, 32u}) {
      auto time = [&](int trips) {
        return median_ns(REPEATS, [&] {
          operations<WORD, SCOPE, USED><<<blocks, THREADS>>>(words, sums, lanes, even, trips);
        });
      };
      double few = time(FEW_TRIPS), many = time(MANY_TRIPS);
      std::printf("%s,%s,%s,%u,%s,0,%.4f\n", WORDS[int(WORD)],
                  SCOPE == Scope::SYSTEM ? "system" : "device", USED ? "used" : "unused", lanes,
                  even ? "even" : "own", (many - few) / requests);
    }
}

template <Word WORD>
void run_scopes(u32* words, u32* sums) {
  run_operations<WORD, Scope::DEVICE, false>(words, sums);
  run_operations<WORD, Scope::DEVICE, true>(words, sums);
  run_operations<WORD, Scope::SYSTEM, false>(words, sums);
  run_operations<WORD, Scope::SYSTEM, true>(words, sums);
}

template <class T>
void run_stores(const char* name, unsigned char* bytes) {
  for (u32 lanes : {1u, 32u})
    for (u64 stride : {u64(0), u64(4), u64(32), u64(128), u64(1024)}) {
      auto time = [&](int blocks) {
        return median_ns(REPEATS, [&] { stores<T><<<blocks, STORING_THREADS>>>(bytes, lanes, stride); });
      };
      double few = time(FEW_BLOCKS), many = time(MANY_BLOCKS);
      double requests = double(MANY_BLOCKS - FEW_BLOCKS) * STORING_THREADS / 32;
      std::printf("store,%s,unused,%u,even,%zu,%.4f\n", name, lanes, size_t(stride),
                  (many - few) / requests);
    }
}

int main() {
  u32* words = static_cast<u32*>(random_memory(512 << 20));
  u32* sums = device_memory<u32>(1 << 20);
  std::printf("operation,variant,result,lanes,operands,stride_bytes,ns_per_request\n");
  run_stores<unsigned char>("u8", reinterpret_cast<unsigned char*>(words));
  run_stores<u32>("u32", reinterpret_cast<unsigned char*>(words));
  run_scopes<Word::ADD>(words, sums);
  run_scopes<Word::MAX>(words, sums);
  run_scopes<Word::AND>(words, sums);
  run_scopes<Word::EXCHANGE>(words, sums);
  run_scopes<Word::INCREMENT>(words, sums);
  run_scopes<Word::SWAP>(words, sums);
  return 0;
}
