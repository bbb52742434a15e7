// Tensor cores through wgmma (compute capability 9.0, compiled for sm_90a): four warps multiply
// 64 x K by K x 256 from shared memory. Two such groups per multiprocessor keep its tensor cores
// busy, whereas mma.sync reaches about two thirds of the peak.
//
// A is 64 x 128 bytes for each group, B 256 x 128 bytes, K along the rows, in the 128-byte swizzle:
// the four steps along K read 32 bytes of each row.

constexpr int GROUPS = 2;
constexpr int GROUP_THREADS = 128;
constexpr int THREADS = GROUPS * GROUP_THREADS;
constexpr u32 A_BYTES = 64 * 128;
constexpr u32 B_BYTES = 256 * 128;
constexpr u32 STEP_BYTES = 32;

extern __shared__ __align__(1024) unsigned char staged[];

// The matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor Format"): everything in units of
// 16 bytes; 1024 bytes from one group of eight rows to the next; 1 in the top bits: 128-byte swizzle.
__device__ __forceinline__ u64 descriptor(u32 address) {
    return u64((address & 0x3FFFF) >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

#define WGMMA(name, instruction, tail)                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                      \
        name(const uint4* matrices, u32, int trips, u32, float* out, Clock* elapsed) {            \
        uint4* words = reinterpret_cast<uint4*>(staged);                                          \
        for (u32 i = threadIdx.x; i < (GROUPS * A_BYTES + B_BYTES) / 16; i += THREADS)            \
            words[i] = matrices[i];                                                               \
        /* wgmma reads shared memory through another proxy than the stores above. */              \
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                              \
        __syncthreads();                                                                          \
        const u32 base = u32(__cvta_generic_to_shared(staged));                                   \
        const u64 a = descriptor(base + threadIdx.x / GROUP_THREADS * A_BYTES);                   \
        const u64 b = descriptor(base + GROUPS * A_BYTES);                                        \
        float d[128];                                                                             \
        _Pragma("unroll") for (int i = 0; i < 128; ++i) d[i] = 0;                                 \
        const Clock begin = now();                                                                \
        for (int trip = 0; trip < trips; ++trip) {                                                \
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                               \
            _Pragma("unroll") for (int k = 0; k < 4; ++k) asm volatile(                           \
                "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0;\n" instruction " {"       \
                "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
                "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "\
                "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "\
                "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "\
                "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "\
                "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "\
                "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "\
                "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"\
                "}, %128, %129, accumulate, " tail "; }"                                          \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),                                 \
                  "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),                                 \
                  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),                               \
                  "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),                             \
                  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),                             \
                  "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),                             \
                  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),                             \
                  "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),                             \
                  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),                             \
                  "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),                             \
                  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),                             \
                  "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),                             \
                  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]),                             \
                  "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),                             \
                  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),                             \
                  "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),                             \
                  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]),                             \
                  "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),                             \
                  "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]),                             \
                  "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),                             \
                  "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),                             \
                  "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),                             \
                  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),                             \
                  "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),                             \
                  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]),                             \
                  "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),                         \
                  "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),                         \
                  "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),                         \
                  "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),                         \
                  "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),                         \
                  "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]),                         \
                  "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])                          \
                : "l"(a + k * (STEP_BYTES >> 4)), "l"(b + k * (STEP_BYTES >> 4)));                \
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                        \
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");                        \
        }                                                                                         \
        tell(begin, elapsed);                                                                     \
        float sum = 0;                                                                            \
        _Pragma("unroll") for (int i = 0; i < 128; ++i) sum += d[i];                              \
        out[u64(blockIdx.x) * THREADS + threadIdx.x] = sum;                                       \
    }

WGMMA(wgmma_tf32, "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", "1, 1")
WGMMA(wgmma_fp16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "1, 1, 0, 0")
WGMMA(wgmma_bf16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "1, 1, 0, 0")
