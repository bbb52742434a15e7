// Attention in one kernel on the tensor cores of Hopper (wgmma), fed by tensor maps.
//
// As attention-mma, in BF16 with float32 sums. A block has a producer, whose one thread has tiles of K
// and V copied into a ring of STAGES buffers (TMA), and CONSUMERS warpgroups with 64 queries each, which
// multiply from shared memory. Two things overlap (Shah et al., "FlashAttention-3", NeurIPS 2024):
// within a warpgroup, the scores of a tile are multiplied together with the values of the tile before;
// between warpgroups, which take turns, one multiplies while the others compute exponentials. The
// producer gives registers away, which the consumers need for scores, weights and outputs.
//
// What to expect: the tensor cores are fed without instructions for loads, and run while exponentials
// are computed. With HEAD_SIZE 128 the products are the ceiling; with 64 the exponentials of a tile
// take as long as its products, and both bound the kernel. A block of 128 or 192 queries fills a
// multiprocessor: one block runs on each.

#include <cuda.h>
#include <cuda_bf16.h>

#define KEYS 128
#define STAGES 2
#define QUERIES (64 * CONSUMERS)
#define THREADS (128 * (1 + CONSUMERS))
#define WARPS (4 * CONSUMERS)
// A tile is in panels of 64 columns, whose rows of 128 bytes are swizzled as the tensor maps say.
#define PANELS (HEAD_SIZE / 64)
#define ROW_BYTES 128
#define Q_BYTES (PANELS * QUERIES * ROW_BYTES)
#define KV_BYTES (PANELS * KEYS * ROW_BYTES)
// Of the registers of a multiprocessor, 64 Ki / THREADS each at the start.
#define PRODUCER_REGISTERS "24"
#if CONSUMERS == 2
#define CONSUMER_REGISTERS "240"
#else
#define CONSUMER_REGISTERS "160"
#endif

__device__ unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// --- Barriers in shared memory, which count arrivals and the bytes of copies ---

__device__ void initialize(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void arrive_and_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ void wait(unsigned barrier, int parity) {
  for (unsigned done = 0; !done;) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Copies so many rows of a head, panel by panel; rows behind the last token become zeros.
__device__ void copy_tile(unsigned to, const CUtensorMap* map, int rows, int first_row, int head,
                          unsigned barrier) {
  arrive_and_expect(barrier, PANELS * rows * ROW_BYTES);
  for (int panel = 0; panel < PANELS; ++panel) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to + panel * rows * ROW_BYTES),
        "l"(map), "r"(64 * panel), "r"(first_row), "r"(head), "r"(barrier)
        : "memory");
  }
}

// --- Products of warpgroups ---

// Describes matrices in shared memory: their address, the bytes from one panel to the next, 1,024
// bytes from eight rows to the next eight, and the swizzling of 128 bytes, all but the last in 16s.
__device__ unsigned long long descriptor(unsigned address, int panel_bytes) {
  return 1ull << 62 | 1024ull / 16 << 32 | (unsigned long long)(panel_bytes / 16) << 16 |
         address / 16;
}

#define REGISTERS_64                                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "  \
  "%56, %57, %58, %59, %60, %61, %62, %63}"
#define REGISTERS_32                                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FOUR(r, i) "+f"(r[i]), "+f"(r[i + 1]), "+f"(r[i + 2]), "+f"(r[i + 3])
#define SIXTEEN(r, i) FOUR(r, i), FOUR(r, i + 4), FOUR(r, i + 8), FOUR(r, i + 12)
#define THIRTY_TWO(r, i) SIXTEEN(r, i), SIXTEEN(r, i + 16)

// scores (64 x KEYS) = Q (64 x 16) * K^T (16 x KEYS), or += if `add`; both in shared memory.
__device__ void multiply(float (&scores)[KEYS / 2], unsigned long long q, unsigned long long k,
                         int add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.s32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
      ", %64, %65, add, 1, 1, 0, 0; }"
      : THIRTY_TWO(scores, 0), THIRTY_TWO(scores, 32)
      : "l"(q), "l"(k), "r"(add));
}

// out (64 x HEAD_SIZE) += weights (64 x 16) * V (16 x HEAD_SIZE); the weights are in registers.
__device__ void multiply_add(float (&out)[HEAD_SIZE / 2], const unsigned* weights,
                             unsigned long long v) {
#if HEAD_SIZE == 128
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : THIRTY_TWO(out, 0), THIRTY_TWO(out, 32)
#else
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS_32
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : THIRTY_TWO(out, 0)
#endif
               : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(v));
}

__device__ void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving uses of registers across: before a product starts, after it ended.
template <int COUNT>
__device__ void pin(float (&registers)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

__device__ void multiply_scores(float (&scores)[KEYS / 2], unsigned Q_tile, unsigned K_tile) {
#pragma unroll
  for (int d = 0; d < HEAD_SIZE / 16; ++d) {  // 16 columns are 32 bytes
    multiply(scores, descriptor(Q_tile + d / 4 * QUERIES * ROW_BYTES + d % 4 * 32, 16),
             descriptor(K_tile + d / 4 * KEYS * ROW_BYTES + d % 4 * 32, 16), d > 0);
  }
  commit_products();
}

__device__ void multiply_values(float (&out)[HEAD_SIZE / 2], const unsigned (&weights)[KEYS / 4],
                                unsigned V_tile) {
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k) {
    multiply_add(out, weights + 4 * k, descriptor(V_tile + k * 16 * ROW_BYTES, KEYS * ROW_BYTES));
  }
  commit_products();
}

// --- Softmax: of each 8 columns a lane has two, in the rows lane / 4 and lane / 4 + 8 of its warp ---

__device__ float exp2_of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ unsigned pair(float first, float second) {
  __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<unsigned*>(&both);
}

struct True {
  static constexpr bool value = true;
};

struct False {
  static constexpr bool value = false;
};

struct Rows {
  float largest[2], sum[2], correction[2];
};

// Turns scores into weights; `visible` counts the keys that the rows see from the lane's first on.
template <bool MASKED>
__device__ void softmax(float (&scores)[KEYS / 2], Rows& rows, const int (&visible)[2],
                        float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = rows.largest[half], other = -INFINITY;  // two, so that comparisons overlap
#pragma unroll
    for (int i = 2 * half; i < KEYS / 2; i += 4) {
      if (MASKED && 2 * i - 4 * half >= visible[half]) scores[i] = -INFINITY;
      if (MASKED && 2 * i - 4 * half + 1 >= visible[half]) scores[i + 1] = -INFINITY;
      top = fmaxf(top, scores[i]);
      other = fmaxf(other, scores[i + 1]);
    }
    top = fmaxf(top, other);
    top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));  // the four lanes of a row
    top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
    float shift = (MASKED && top == -INFINITY ? 0.0f : top) * scale;  // a row may see no key yet
    rows.correction[half] = exp2_of(fmaf(rows.largest[half], scale, -shift));
    rows.largest[half] = top;
    float sum = 0.0f, other_sum = 0.0f;
#pragma unroll
    for (int i = 2 * half; i < KEYS / 2; i += 4) {
      sum += scores[i] = exp2_of(fmaf(scores[i], scale, -shift));
      other_sum += scores[i + 1] = exp2_of(fmaf(scores[i + 1], scale, -shift));
    }
    rows.sum[half] = fmaf(rows.sum[half], rows.correction[half], sum + other_sum);
  }
}

// `scale` includes log2(e): 2^x gives the weights.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_wgmma(const __grid_constant__ CUtensorMap Q_map,
                    const __grid_constant__ CUtensorMap K_map,
                    const __grid_constant__ CUtensorMap V_map, __nv_bfloat16* O, int tokens,
                    float scale) {
  extern __shared__ unsigned char shared[];
  __shared__ unsigned long long barriers[1 + 4 * STAGES];

  unsigned Q_tile = (shared_address(shared) + 1023) & ~1023;  // as the swizzling requires
  unsigned K_tiles = Q_tile + Q_BYTES, V_tiles = K_tiles + STAGES * KV_BYTES;
  unsigned Q_full = shared_address(barriers), K_full = Q_full + 8, V_full = K_full + 8 * STAGES;
  unsigned K_empty = V_full + 8 * STAGES, V_empty = K_empty + 8 * STAGES;

  int head = blockIdx.y;  // with CAUSAL, blocks with more keys start first
  int first_query = (CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * QUERIES;
  int keys = CAUSAL ? min(first_query + QUERIES, tokens) : tokens;
  int tiles = (keys + KEYS - 1) / KEYS;  // from the last to the first, so that masking comes first

  if (threadIdx.x == 0) {
    initialize(Q_full, 1);
    for (int stage = 0; stage < STAGES; ++stage) {
      initialize(K_full + 8 * stage, 1);
      initialize(V_full + 8 * stage, 1);
      initialize(K_empty + 8 * stage, WARPS);
      initialize(V_empty + 8 * stage, WARPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);  // the same for the compiler, too
  if (warpgroup == CONSUMERS) {  // the producer
    asm volatile("setmaxnreg.dec.sync.aligned.u32 " PRODUCER_REGISTERS ";");
    if (threadIdx.x != 128 * CONSUMERS) return;
    copy_tile(Q_tile, &Q_map, QUERIES, first_query, head, Q_full);
    for (int i = 0; i <= tiles; ++i) {  // K of tile i, then V of the tile before
      if (i < tiles) {
        int stage = i % STAGES, parity = i / STAGES % 2;
        wait(K_empty + 8 * stage, !parity);
        copy_tile(K_tiles + stage * KV_BYTES, &K_map, KEYS, (tiles - 1 - i) * KEYS, head,
                  K_full + 8 * stage);
      }
      if (i > 0) {
        int stage = (i - 1) % STAGES, parity = (i - 1) / STAGES % 2;
        wait(V_empty + 8 * stage, !parity);
        copy_tile(V_tiles + stage * KV_BYTES, &V_map, KEYS, (tiles - i) * KEYS, head,
                  V_full + 8 * stage);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 " CONSUMER_REGISTERS ";");
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  int row = first_query + 64 * warpgroup + 16 * warp + lane / 4, column = lane % 4 * 2;
  int limit[2] = {CAUSAL ? min(row + 1, tokens) : tokens, CAUSAL ? min(row + 9, tokens) : tokens};
  // Keys that all rows of the warpgroup see.
  int seen_by_all = CAUSAL ? min(first_query + 64 * warpgroup + 1, tokens) : tokens;
  Q_tile += warpgroup * 64 * ROW_BYTES;

  float scores[KEYS / 2], out[HEAD_SIZE / 2] = {};
  unsigned weights[KEYS / 4];
  Rows rows = {{-INFINITY, -INFINITY}};

  // A warpgroup's turn comes when all others have had theirs. Barrier 1 + w of the hardware belongs to
  // warpgroup w; at first the turn is that of 0, then of 1, and so on.
#pragma unroll
  for (int other = 0; other < CONSUMERS - 1; ++other) {
    if (other < warpgroup) {
      asm volatile("bar.arrive %0, %1;" ::"r"(1 + other), "n"(128 * CONSUMERS) : "memory");
    }
  }
  auto take_turn = [&] {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(128 * CONSUMERS) : "memory");
  };
  auto pass_turn = [&] {
#pragma unroll
    for (int ahead = 1; ahead < CONSUMERS; ++ahead) {
      int other = (warpgroup + ahead) % CONSUMERS;
      asm volatile("bar.arrive %0, %1;" ::"r"(1 + other), "n"(128 * CONSUMERS) : "memory");
    }
  };
  auto release = [&](unsigned barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };
  auto weigh = [&](int i, auto masked) {
    int before = (tiles - 1 - i) * KEYS + column;
    int visible[2] = {limit[0] - before, limit[1] - before};
    softmax<decltype(masked)::value>(scores, rows, visible, scale);
  };
  auto round_weights = [&] {
#pragma unroll
    for (int i = 0; i < KEYS / 4; ++i) weights[i] = pair(scores[2 * i], scores[2 * i + 1]);
  };

  // The scores of tile i, and the values of tile i - 1 with the weights that it has.
  auto step = [&](int i, auto masked) {
    int stage = i % STAGES, parity = i / STAGES % 2;
    int V_stage = (i - 1) % STAGES, V_parity = (i - 1) / STAGES % 2;
    wait(K_full + 8 * stage, parity);
    take_turn();
    pin(out);
    start_products();
    multiply_scores(scores, Q_tile, K_tiles + stage * KV_BYTES);
    wait(V_full + 8 * V_stage, V_parity);
    multiply_values(out, weights, V_tiles + V_stage * KV_BYTES);
    pass_turn();
    wait_for_products<1>();
    pin(scores);
    release(K_empty + 8 * stage);
    weigh(i, masked);
    wait_for_products<0>();
    pin(out);
    release(V_empty + 8 * V_stage);
    round_weights();
#pragma unroll
    for (int c = 0; c < HEAD_SIZE / 2; ++c) out[c] *= rows.correction[c / 2 % 2];
  };

  wait(Q_full, 0);
  wait(K_full, 0);
  take_turn();
  start_products();
  multiply_scores(scores, Q_tile, K_tiles);
  pass_turn();
  wait_for_products<0>();
  pin(scores);
  release(K_empty);
  weigh(0, True());
  round_weights();

  int i = 1;
  for (; i < tiles && (tiles - i) * KEYS > seen_by_all; ++i) step(i, True());
  for (; i < tiles; ++i) step(i, False());

  int stage = (tiles - 1) % STAGES, parity = (tiles - 1) / STAGES % 2;
  wait(V_full + 8 * stage, parity);
  pin(out);
  start_products();
  multiply_values(out, weights, V_tiles + stage * KV_BYTES);
  wait_for_products<0>();
  pin(out);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    float factor = 1.0f / sum;
    int query = row + 8 * half;
    if (query < tokens) {
      __nv_bfloat16* to = O + (head * tokens + query) * HEAD_SIZE + column;
#pragma unroll
      for (int c = 0; c < HEAD_SIZE / 8; ++c) {
        *reinterpret_cast<unsigned*>(to + 8 * c) =
            pair(out[4 * c + 2 * half] * factor, out[4 * c + 2 * half + 1] * factor);
      }
    }
  }
}
