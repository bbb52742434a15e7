// Stores and reductions of random boxes by tensor maps (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor),
// for benchmarks/microbenchmarks.py: which bytes of global memory they write, and from where.
//
// Each box is stored twice, from shared memory that holds the low and the high part of each byte's place, so
// that a byte of global memory tells from where it came. A box that ends within a row of its tensor may write
// more than its elements: `runs` has what lies outside the tensor, as place+count<source, in bytes. Listed is
// the first such box of each operation and rank, with and without a swizzle and with and without steps, of
// those with few runs. Numbers of dimensions begin with the fastest one; `strides` has the bytes of an
// element first, and `written` counts bytes. How many boxes were stored, and whether all wrote whole pieces
// of 16 bytes, is printed as a message.
#include <cuda.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "device.cuh"

constexpr int SEEDS = 8, BOXES = 1000, MOST_RUNS = 4;
constexpr int RANKS = 5, SHARED_BYTES = 32 * 1024, OUT_BYTES = 128 * 1024, FRONT_BYTES = 256, PIECE_BYTES = 16;
constexpr int NOTHING = -1;  // was written

extern __shared__ __align__(1024) unsigned char tile[];

struct Place {
  int at[RANKS];
  int offset;  // of the box in shared memory
  bool high;   // parts of the places of its bytes
  bool add;
};

#define COPY(DIMENSIONS, POINT, ...)                                                                            \
  if (of.add)                                                                                                   \
    asm volatile("cp.reduce.async.bulk.tensor." DIMENSIONS                                                      \
                 ".global.shared::cta.add.tile.bulk_group [%1, " POINT "], [%0];" ::"r"(from), "l"(&map),       \
                 __VA_ARGS__                                                                                    \
                 : "memory");                                                                                   \
  else                                                                                                          \
    asm volatile("cp.async.bulk.tensor." DIMENSIONS ".global.shared::cta.tile.bulk_group [%1, " POINT "], [%0];" \
                 ::"r"(from), "l"(&map), __VA_ARGS__                                                            \
                 : "memory");

template <int RANK>
__global__ void stores(const __grid_constant__ CUtensorMap map, Place of) {
  for (int i = threadIdx.x; i < SHARED_BYTES; i += blockDim.x)
    tile[i] = of.high ? (i >> 8) + 1 : i & 255;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0)
    return;
  u32 from = u32(__cvta_generic_to_shared(tile)) + of.offset;
  const int* at = of.at;
  if constexpr (RANK == 1) COPY("1d", "{%2}", "r"(at[0]))
  if constexpr (RANK == 2) COPY("2d", "{%2, %3}", "r"(at[0]), "r"(at[1]))
  if constexpr (RANK == 3) COPY("3d", "{%2, %3, %4}", "r"(at[0]), "r"(at[1]), "r"(at[2]))
  if constexpr (RANK == 4) COPY("4d", "{%2, %3, %4, %5}", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]))
  if constexpr (RANK == 5)
    COPY("5d", "{%2, %3, %4, %5, %6}", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]))
  asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
}

const void* const KERNELS[] = {nullptr, (void*)stores<1>, (void*)stores<2>, (void*)stores<3>, (void*)stores<4>, (void*)stores<5>};

struct Type {
  CUtensorMapDataType type;
  int bytes;
  const char* name;
};

const Type TYPES[] = {{CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, "u8"},
                      {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, "f16"},
                      {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, "u32"},
                      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, "f32"},
                      {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, "u64"}};

const CUtensorMapSwizzle SWIZZLES[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                       CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B};
const CUtensorMapL2promotion PROMOTIONS[] = {
    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B};

// A tensor, and a box of it that begins at multiples of a piece.
struct Box {
  int rank, type, swizzle, promotion;
  bool add;
  int offset, base;  // bytes in shared and global memory
  int extent[RANKS], box[RANKS], step[RANKS], at[RANKS];
  int stride[RANKS];  // bytes; that of the fastest dimension is the element's

  const Type& element() const { return TYPES[type]; }
  int span() const { return swizzle ? 16 << swizzle : 0; }
  bool steps() const { return std::any_of(step, step + rank, [](int each) { return each > 1; }); }
};

// A random box whose tensor fits into the memory.
Box drawn(std::mt19937& random) {
  auto pick = [&](int low, int high) { return low + int(random() % u32(high - low + 1)); };
  for (;;) {
    Box b{};
    b.rank = pick(1, RANKS);
    b.type = pick(0, 4);
    int bytes = b.element().bytes, least = PIECE_BYTES / bytes;
    b.add = (b.element().type == CU_TENSOR_MAP_DATA_TYPE_UINT32 || bytes == 8) && pick(0, 1);
    b.swizzle = pick(0, 9) < 7 ? 0 : pick(1, 3);
    b.promotion = pick(0, 3);
    b.base = PIECE_BYTES * pick(0, 8);
    b.offset = 128 * pick(0, 7);
    b.box[0] = std::min(256 / least, pick(1, b.swizzle ? b.span() / PIECE_BYTES : 8)) * least;
    bool steps = pick(0, 1);
    for (int d = 0; d < RANKS; ++d) {
      b.step[d] = b.extent[d] = 1;
      if (d >= b.rank) {
        b.box[d] = 1;
      } else if (d == 0) {
        b.extent[0] = pick(1, 2 * b.box[0]);
        b.at[0] = pick(0, (b.extent[0] * bytes + PIECE_BYTES - 1) / PIECE_BYTES) * least;
      } else {
        b.box[d] = pick(1, 4);
        if (steps) b.step[d] = pick(1, 3);
        b.extent[d] = pick(1, 2 * b.box[d] + 2);
        b.at[d] = pick(0, 3) ? pick(0, b.extent[d] - 1) : pick(0, b.extent[d] + 1);
      }
    }
    int pieces = (b.extent[0] * bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    int size = PIECE_BYTES * (pieces + pick(0, 2));
    b.stride[0] = bytes;
    for (int d = 1; d < RANKS; ++d) {
      b.stride[d] = size;
      if (d < b.rank) size = size * b.extent[d] + PIECE_BYTES * pick(0, 1);
    }
    if (size + 2 * FRONT_BYTES <= OUT_BYTES) return b;
  }
}

// From which byte of shared memory each byte of global memory comes, where elements or whole pieces are written.
struct Expected {
  std::vector<int> elements, pieces;
};

Expected expected(const Box& b) {
  Expected found{std::vector<int>(OUT_BYTES, NOTHING), std::vector<int>(OUT_BYTES, NOTHING)};
  int counts[RANKS], row = b.box[0] * b.stride[0], pitch = std::max(row, b.span()), index = 0;
  for (int d = 0; d < RANKS; ++d)
    counts[d] = d < b.rank ? (b.box[d] + b.step[d] - 1) / b.step[d] : 1;
  for (int i4 = 0; i4 < counts[4]; ++i4)
    for (int i3 = 0; i3 < counts[3]; ++i3)
      for (int i2 = 0; i2 < counts[2]; ++i2)
        for (int i1 = 0; i1 < counts[1]; ++i1, ++index) {
          int i[] = {0, i1, i2, i3, i4}, place = FRONT_BYTES + b.base;
          bool inside = true;
          for (int d = 1; d < b.rank; ++d) {
            int where = b.at[d] + i[d] * b.step[d];
            inside &= where < b.extent[d];
            place += where * b.stride[d];
          }
          int end = b.extent[0] * b.stride[0];
          for (int part = 0; inside && part < row; ++part) {
            int byte = b.at[0] * b.stride[0] + part, source = b.offset + index * pitch + part;
            if (b.swizzle) source ^= (source >> 7 & ((1 << b.swizzle) - 1)) << 4;
            if (byte < end) found.elements[place + byte] = source;
            if (byte / PIECE_BYTES * PIECE_BYTES < end) found.pieces[place + byte] = source;
          }
        }
  return found;
}

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  void* function;
  cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result));
  return reinterpret_cast<Encode>(function);
}

// From which byte of shared memory each byte of global memory came.
std::vector<int> stored(const Box& b, Encode encode, unsigned char* out) {
  cuuint64_t extents[RANKS], strides[RANKS];
  cuuint32_t box[RANKS], steps[RANKS];
  for (int d = 0; d < RANKS; ++d) {
    extents[d] = b.extent[d];
    box[d] = b.box[d];
    steps[d] = b.step[d];
    if (d) strides[d - 1] = b.stride[d];
  }
  CUtensorMap map;
  if (encode(&map, b.element().type, b.rank, out + FRONT_BYTES + b.base, extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, SWIZZLES[b.swizzle], PROMOTIONS[b.promotion],
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::fprintf(stderr, "the driver refuses a map\n");
    std::exit(1);
  }
  std::vector<unsigned char> parts[2];
  for (bool high : {false, true}) {
    Place of{{b.at[0], b.at[1], b.at[2], b.at[3], b.at[4]}, b.offset, high, b.add};
    void* arguments[] = {&map, &of};
    CHECK(cudaMemset(out, 0, OUT_BYTES));
    CHECK(cudaLaunchKernel(KERNELS[b.rank], dim3(1), dim3(128), arguments, SHARED_BYTES, 0));
    finish();
    parts[high].resize(OUT_BYTES);
    CHECK(cudaMemcpy(parts[high].data(), out, OUT_BYTES, cudaMemcpyDeviceToHost));
  }
  std::vector<int> sources(OUT_BYTES);
  for (int i = 0; i < OUT_BYTES; ++i)
    sources[i] = parts[1][i] ? (parts[1][i] - 1) << 8 | parts[0][i] : NOTHING;
  return sources;
}

// What was written though it is no element of the box, and how many runs of bytes that are.
std::pair<std::string, int> outside(const Box& b, const std::vector<int>& sources, const std::vector<int>& elements) {
  std::string text;
  int count = 0, start = FRONT_BYTES + b.base;
  for (int i = 0, stop; i < OUT_BYTES; i = stop + 1) {
    for (stop = i; stop < OUT_BYTES && sources[stop] != elements[stop];) ++stop;
    if (stop == i) continue;
    text += (count++ ? " " : "") + std::to_string(i - start) + "+" + std::to_string(stop - i) + "<" +
            std::to_string(sources[i]);
  }
  return {text, count};
}

std::string listed(const Box& b, const int* values) {
  std::string text;
  for (int d = 0; d < b.rank; ++d)
    text += (d ? " " : "") + std::to_string(values[d]);
  return text;
}

int main() {
  Encode encode = encoder();
  auto* out = device_memory<unsigned char>(OUT_BYTES);
  std::printf("operation,type,rank,swizzle,offset,extents,strides,boxes,steps,at,written,runs\n");
  std::set<std::tuple<bool, int, bool, bool>> kinds;
  int beyond = 0, others = 0;
  for (int seed = 0; seed < SEEDS; ++seed) {
    std::mt19937 random(seed);
    for (int number = 0; number < BOXES; ++number) {
      Box b = drawn(random);
      Expected of = expected(b);
      std::vector<int> sources = stored(b, encode, out);
      others += sources != of.pieces;
      if (sources == of.elements) continue;
      ++beyond;
      auto [runs, count] = outside(b, sources, of.elements);
      if (count > MOST_RUNS || !kinds.insert({b.add, b.rank, b.swizzle > 0, b.steps()}).second) continue;
      auto written = OUT_BYTES - std::count(sources.begin(), sources.end(), NOTHING);
      std::printf("%s,%s,%d,%d,%d,%s,%s,%s,%s,%s,%d,%s\n", b.add ? "add" : "store", b.element().name, b.rank, b.span(),
                  b.offset, listed(b, b.extent).c_str(), listed(b, b.stride).c_str(), listed(b, b.box).c_str(),
                  listed(b, b.step).c_str(), listed(b, b.at).c_str(), int(written), runs.c_str());
    }
  }
  std::fprintf(stderr, "%d boxes, of which %d wrote bytes outside the tensor, and %d other bytes than whole pieces\n",
               SEEDS * BOXES, beyond, others);
  return others != 0;
}
