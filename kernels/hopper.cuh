// Hopper's instructions for matrix products (compute capability 9.0, compiled for sm_90a). This
// text follows that of a kernel, which declares what it uses of it. Addresses are those of shared
// memory.

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// A value that is the same for all threads of a warp, and that the compiler knows to be so.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// --- Barriers (mbarrier): a phase is complete after its arrivals and its bytes; phases alternate
// between parity 0 and 1.

__device__ __forceinline__ void make_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes new barriers known to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets the phase wait for so many bytes of copies.
__device__ __forceinline__ void arrive_expecting(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
  unsigned complete;
  do {
    asm volatile(
        "{ .reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete; }"
        : "=r"(complete)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!complete);
}

// --- Barriers of some warpgroups (bar.sync), by a number from 1 to 15.

__device__ __forceinline__ void meet(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Arrives for others that meet there, and goes on.
__device__ __forceinline__ void let_meet(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- Clusters: blocks that run at the same time and reach each other's shared memory.

__device__ __forceinline__ unsigned block_in_cluster() {
  unsigned block;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
}

// Until all threads of the cluster are here. It orders no accesses of memory.
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}

// Arrives at the same barrier of a block in the cluster. With `.release.cluster` it would wait for
// all earlier accesses of this thread, which cost `wgmma-cluster` a third of its speed.
__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned block) {
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// --- Copies of boxes by the copy engine (TMA). Elements outside the matrix are read as zeros and
// are not written.

__device__ __forceinline__ void load_box(unsigned to, const CUtensorMap* from, int column, int row,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(from), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// The same to several blocks of the cluster, a bit for each: to the same place in the shared memory
// of each, whose own barrier gets the bytes.
__device__ __forceinline__ void load_box_to(unsigned blocks, unsigned to, const CUtensorMap* from,
                                            int column, int row, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(from), "r"(column), "r"(row), "r"(barrier), "h"((unsigned short)blocks)
      : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap* to, int column, int row,
                                          unsigned from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                   to),
               "r"(column), "r"(row), "r"(from)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but the last PENDING stores of this thread have read shared memory.
template <int PENDING>
__device__ __forceinline__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Orders this thread's stores to shared memory before later copies from it.
__device__ __forceinline__ void show_to_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Registers: a warpgroup gives some of its own back, or takes from what others gave.

template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// --- Products of a warpgroup (wgmma). A group of them begins after `begin_products` and ends with
// `end_products`; then the warpgroup waits until at most PENDING groups are incomplete.

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The descriptor of a matrix in shared memory whose rows of 128 bytes are swizzled, eight rows in
// 1024 bytes (PTX ISA, "Matrix Descriptor Format"; lengths in units of 16 bytes). It takes the low
// 18 bits of the address: in a cluster, the high ones say which block's memory it is. `pitch` is
// the distance in bytes from one box to the next where rows run along n; otherwise it has no
// effect.
__device__ __forceinline__ unsigned long long describe(unsigned address, unsigned pitch) {
  return (unsigned long long)((address & 0x3FFFF) >> 4) | (unsigned long long)(pitch >> 4) << 16 |
         (unsigned long long)(1024 >> 4) << 32 | (unsigned long long)1 << 62;
}

// The descriptor of the same matrix so many bytes further on.
__device__ __forceinline__ unsigned long long advance(unsigned long long matrix, unsigned bytes) {
  return matrix + (bytes >> 4);
}

#define FOUR_SUMS(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SUMS(i) FOUR_SUMS(i), FOUR_SUMS(i + 4), FOUR_SUMS(i + 8), FOUR_SUMS(i + 12)
#define SUMS_64 SUMS(0), SUMS(16), SUMS(32), SUMS(48)
#define SUMS_128 SUMS_64, SUMS(64), SUMS(80), SUMS(96), SUMS(112)
#define NAMES_64                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "               \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "     \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128                                                                        \
  NAMES_64                                                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "   \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "     \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127"

#define FP16 2
#define BF16 3
#if INPUT == FP16
#define PRODUCT(SHAPE) "wgmma.mma_async.sync.aligned." SHAPE ".f32.f16.f16 "
#else
#define PRODUCT(SHAPE) "wgmma.mma_async.sync.aligned." SHAPE ".f32.bf16.bf16 "
#endif

// sums (64 x 256, spread over the warpgroup) = M (64 x 16) * N (16 x 256), or += if `add`. M is in
// a box of 64 rows, N in four boxes of 64 columns.
__device__ __forceinline__ void multiply(float (&sums)[128], unsigned long long M,
                                         unsigned long long N, bool add) {
  asm volatile("{ .reg .pred add; setp.ne.u32 add, %130, 0;\n" PRODUCT("m64n256k16")
               "{" NAMES_128 "}, %128, %129, add, 1, 1, 0, 1; }"
               : SUMS_128
               : "l"(M), "l"(N), "r"((unsigned)add));
}

// The same of 64 x 128 sums.
__device__ __forceinline__ void multiply(float (&sums)[64], unsigned long long M,
                                         unsigned long long N, bool add) {
  asm volatile("{ .reg .pred add; setp.ne.u32 add, %66, 0;\n" PRODUCT("m64n128k16")
               "{" NAMES_64 "}, %64, %65, add, 1, 1, 0, 1; }"
               : SUMS_64
               : "l"(M), "l"(N), "r"((unsigned)add));
}

// The same in TF32: sums (64 x 256) = left (64 x 8) * right (8 x 256), or += if `add`. `left` is in
// registers, 16 rows for each warp: a lane has rows lane / 4 and 8 below it of columns lane % 4,
// then of columns lane % 4 + 4. `right` is in a box whose rows run along k.
__device__ __forceinline__ void multiply_tf32(float (&sums)[128], const unsigned (&left)[4],
                                              unsigned long long right, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.u32 add, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" NAMES_128
      "}, {%128, %129, %130, %131}, %132, add, 1, 1; }"
      : SUMS_128
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"((unsigned)add));
}

// Stores 64 x 32 of a warpgroup's sums through a piece of shared memory of 8192 bytes, whose rows of
// 128 bytes are swizzled like those of the tiles. Two pieces take turns: the copy engine stores one
// while the warps write the other.
__device__ __forceinline__ void store_piece(const CUtensorMap* to, int row, int column,
                                            const float* sums, unsigned piece, int group) {
  int thread = threadIdx.x % 128, lane = thread % 32;
  if (thread == 0) {
    wait_for_reads<1>();  // the piece is stored before it is overwritten
  }
  meet(1 + group, 128);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // a lane has two neighbors of a row, twice
      int down = thread / 32 * 16 + lane / 4 + 8 * half, i = 4 * c + 2 * half;
      int chunk = 2 * c + lane % 4 / 2;  // of 16 bytes
      unsigned place = piece + down * 128 + (chunk ^ down % 8) * 16 + lane % 2 * 8;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(place), "f"(sums[i]), "f"(sums[i + 1])
                   : "memory");
    }
  }
  show_to_copies();
  meet(1 + group, 128);
  if (thread == 0) {
    store_box(to, column, row, piece);
  }
}

// Stores all sums of a warpgroup, 64 rows of P, through two pieces of shared memory.
template <int COUNT>
__device__ __forceinline__ void store_sums(const CUtensorMap* to, int first_row, int first_column,
                                           const float (&sums)[COUNT], unsigned pieces,
                                           int group) {
#pragma unroll
  for (int number = 0; number < COUNT / 16; ++number) {
    store_piece(to, first_row, first_column + 32 * number, sums + 16 * number,
                pieces + number % 2 * 8192, group);
  }
}
