// Addresses of shared memory in clusters, for h200-cluster-*.csv.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 rank_of_block()
{
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ u32 blocks_of_cluster()
{
  u32 blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

__device__ __forceinline__ void wait_for_cluster()
{
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 mapa(u32 address, u32 rank)
{
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__device__ __forceinline__ u64 mapa_generic(u64 address, u32 rank)
{
  u64 there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(address), "r"(rank));
  return there;
}

extern __shared__ __align__(1024) u32 sized[];

// `out`: 64 words for each block; `zero` holds a 0 that the compiler does not know.
extern "C" __global__ void addresses(u64 *out, const u64 *zero)
{
  __shared__ __align__(128) u32 fixed[64];
  u32 rank = rank_of_block(), blocks = blocks_of_cluster(), next = (rank + 1) % blocks, word, at = 0;
  u64 *to = out + blockIdx.x * 64, wide;
  fixed[threadIdx.x] = sized[threadIdx.x] = rank;
  if (threadIdx.x == 0) {
    u64 generic = (u64)(void *)fixed, unknown = zero[0];
    u32 own = (u32)__cvta_generic_to_shared(fixed) + (u32)unknown;
    to[at++] = rank;
    to[at++] = blocks;
    asm volatile("{ .shared .align 16 .b8 q[64];\n mov.u32 %0, q; }" : "=r"(word));
    to[at++] = word;
    asm volatile("{ .shared .align 16 .b8 q2[64];\n mov.u64 %0, q2; }" : "=l"(wide));
    to[at++] = wide;
    to[at++] = own;
    to[at++] = (u32)__cvta_generic_to_shared(sized);
    to[at++] = generic;
    to[at++] = (u64)(void *)sized;
    asm volatile("cvta.to.shared.u64 %0, %1;" : "=l"(wide) : "l"(generic + unknown));
    to[at++] = wide;
    asm volatile("cvta.shared.u64 %0, %1;" : "=l"(wide) : "l"((u64)own));
    to[at++] = wide;
    u64 bare = generic & ~0xFF000000ull, far = mapa_generic(generic, next);
    u64 nobody = bare | 0x07000000ull;
    to[at++] = mapa(own, rank);
    to[at++] = mapa(own, next);
    to[at++] = mapa(own & 0xFFFFFF, rank);
    to[at++] = mapa(own & 0xFFFFFF, next);
    to[at++] = mapa_generic(generic, rank);
    to[at++] = far;
    to[at++] = mapa_generic(bare, rank);
    to[at++] = mapa_generic(bare, next);
    to[at++] = mapa(own, 7);
    to[at++] = mapa(own, 300);
    to[at++] = mapa(mapa(own, next), rank);
#define RANK(opcode, constraint, address)                                               \
  asm volatile(opcode " %0, %1;" : "=r"(word) : constraint(address));                   \
  to[at++] = word;
    RANK("getctarank.shared::cluster.u32", "r", own)
    RANK("getctarank.shared::cluster.u32", "r", own & 0xFFFFFF)
    RANK("getctarank.shared::cluster.u32", "r", mapa(own, next))
    RANK("getctarank.shared::cluster.u32", "r", mapa(own, 7))
    RANK("getctarank.shared::cluster.u32", "r", own | 0xF0000000u)
    RANK("getctarank.u64", "l", generic)
    RANK("getctarank.u64", "l", bare)
    RANK("getctarank.u64", "l", far)
#define IS(space, address)                                                              \
  asm volatile("{ .reg .pred p; isspacep." space " p, %1; selp.u32 %0, 1, 0, p; }"      \
               : "=r"(word) : "l"(address));                                            \
  to[at++] = word;
#define IS_SHARED(address) IS("shared", address) IS("shared::cta", address) IS("shared::cluster", address)
    IS_SHARED(generic)
    IS_SHARED(far)
    IS_SHARED(bare)
    asm volatile("cvta.to.shared.u64 %0, %1;" : "=l"(wide) : "l"(far));
    to[at++] = wide;
    asm volatile("cvta.to.shared::cluster.u64 %0, %1;" : "=l"(wide) : "l"(far));
    to[at++] = wide;
    asm volatile("cvta.shared::cluster.u64 %0, %1;" : "=l"(wide) : "l"((u64)mapa(own, next)));
    to[at++] = wide;
    asm volatile("cvta.shared::cta.u64 %0, %1;" : "=l"(wide) : "l"((u64)mapa(own, next)));
    to[at++] = wide;
    ++at;
    IS_SHARED(nobody)
  }
}

__device__ __forceinline__ void copy(u32 to, const u32 *from, u32 barrier)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];"
               ::"r"(to), "l"(from), "r"(barrier) : "memory");
}

__device__ __forceinline__ void copy_shared(u32 to, u32 from, u32 barrier)
{
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];"
               ::"r"(to), "r"(from), "r"(barrier) : "memory");
}

// `out`: what the block of rank `actor` loads, then of each block of a cluster of two 48 words, and
// whether the access has arrived at its barrier (1) or not (0), for the forms that use one.
extern "C" __global__ void accesses(u32 *out, const u32 *in, int form, int variant, u32 actor)
{
  __shared__ __align__(1024) u32 memory[64];
  __shared__ u64 barriers[1];
  u32 rank = rank_of_block(), lane = threadIdx.x, got = 0;
  u32 own = (u32)__cvta_generic_to_shared(memory), value = 0xABC0 + rank;
  u32 own_barrier = (u32)__cvta_generic_to_shared(barriers);
  for (int i = lane; i < 64; i += 32) memory[i] = 0x1000 * (rank + 1) + i;
  if (lane == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(own_barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  wait_for_cluster();
  if (rank == actor) {
    u32 to = own, barrier = own_barrier;
#define EACH(change) to = change(to), barrier = change(barrier)
#define BARE(address) (address) & 0xFFFFFF
#define NEXT(address) mapa(address, (rank + 1) % blocks_of_cluster())
#define SAME(address) mapa(address, rank)
#define NOBODY(address) mapa(address, 7)
#define BIT28(address) (address) | 0x10000000
#define BIT31(address) (address) | 0x80000000
    if (variant == 1) EACH(BARE);
    if (variant == 2) EACH(NEXT);
    if (variant == 3) EACH(SAME);
    if (variant == 4) EACH(NOBODY);
    if (variant == 5) EACH(BIT28);
    if (variant == 6) EACH(BIT31);
    u32 *pointer = (u32 *)((u64)(void *)memory - own + to) + 2;
    if (form == 7)
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                   : "=r"(got) : "r"(to + 16 * (lane & 7)) : "memory");
    else if (form == 22)
      asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
                   ::"r"(to + 16 * (lane & 7)), "r"(value) : "memory");
    else if (lane == 0)
      switch (form) {
#define LOAD(opcode) asm volatile(opcode " %0, [%1+8];" : "=r"(got) : "r"(to) : "memory")
#define STORE(opcode, value) asm volatile(opcode " [%0+8], %1;" ::"r"(to), "r"(value) : "memory")
#define ADD(opcode) asm volatile(opcode " %0, [%1+8], %2;" : "=r"(got) : "r"(to), "r"(0x10000) : "memory")
        case 0: LOAD("ld.shared::cta.u32"); break;
        case 1: LOAD("ld.shared::cluster.u32"); break;
        case 2: STORE("st.shared::cta.u32", value); break;
        case 3: STORE("st.shared::cluster.u32", value); break;
        case 4: ADD("atom.shared::cta.add.u32"); break;
        case 5: ADD("atom.shared::cluster.add.u32"); break;
        case 6: STORE("red.relaxed.cluster.shared::cluster.add.u32", 0x10000); break;
        case 8:
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.wait_all;"
                       ::"r"(to), "l"(in) : "memory");
          break;
        case 9:
          asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(barrier) : "memory");
          break;
        case 10:
          asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
          break;
        case 14: copy(to, in, barrier); break;
        case 16:
          asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0+8], %1, [%2];"
                       ::"r"(to), "r"(value), "r"(barrier) : "memory");
          break;
        case 17: got = *(volatile u32 *)pointer; break;
        case 18: *(volatile u32 *)pointer = value; break;
        case 23: copy_shared(own + 128, to, own_barrier); break;
        case 26: copy_shared(to + 128, own, barrier); break;
        case 27: got = atomicAdd(pointer, 0x10000u); break;
      }
    if (lane == 0) out[0] = got;
    __nanosleep(20000);
  }
  __syncwarp();
  wait_for_cluster();
  bool arrives = form == 9 || form == 10, copies = form == 14 || form == 16 || form == 23 || form == 26;
  if (lane == 0 && (arrives || copies)) {
    u32 bytes = form == 16 ? 4 : 64, complete;
    if (copies)
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(own_barrier), "r"(bytes) : "memory");
    for (int i = arrives; i < 2; ++i)
      asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(own_barrier) : "memory");
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(complete) : "r"(own_barrier) : "memory");
    out[97 + rank] = complete;
  }
  for (int i = lane; i < 48; i += 32) out[1 + 48 * rank + i] = memory[i];
}
