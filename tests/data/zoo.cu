// What students' kernels call: one kernel a subject, one output row a function, so that a test
// can name the function that is wrong. No header is included: NVRTC brings what is used here.

#define ROW(k, value) out[(k) * n + i] = (value)

extern "C" __global__ void float_math(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i];
    ROW(0, sinf(x));
    ROW(1, cosf(x));
    ROW(2, tanf(x));
    ROW(3, expf(y));
    ROW(4, exp2f(y));
    ROW(5, expm1f(y));
    ROW(6, logf(fabsf(x)));
    ROW(7, log2f(fabsf(x)));
    ROW(8, log1pf(fabsf(x)));
    ROW(9, powf(fabsf(x), y));
    ROW(10, sqrtf(fabsf(x)));
    ROW(11, rsqrtf(fabsf(x)));
    ROW(12, cbrtf(x));
    ROW(13, hypotf(x, y));
    ROW(14, erff(y));
    ROW(15, tanhf(y));
    ROW(16, atan2f(x, y));
    ROW(17, fmodf(x, y));
    ROW(18, floorf(x));
    ROW(19, ceilf(x));
    ROW(20, truncf(x));
    ROW(21, roundf(x));
    ROW(22, rintf(x));
    ROW(23, fminf(x, y));
    ROW(24, fmaxf(x, y));
    ROW(25, fmaf(x, y, 1.5f));
    ROW(26, x / y);
    ROW(27, copysignf(x, y));
    ROW(28, __expf(y));
    ROW(29, __logf(fabsf(x)));
    ROW(30, __sinf(y));
    ROW(31, __cosf(y));
    ROW(32, __fdividef(x, y));
    ROW(33, __powf(fabsf(x), 0.5f));
    ROW(34, __frcp_rn(x));
    ROW(35, __saturatef(y));
    ROW(36, __fadd_rz(x, y));
    ROW(37, __fmul_ru(x, y));
    ROW(38, __fmaf_rd(x, y, 1.0f));
    ROW(39, __fdiv_rz(x, y));
    ROW(40, __fsqrt_ru(fabsf(x)));
    ROW(41, lgammaf(fabsf(y) + 1.0f));
    ROW(42, asinf(x / 200.0f));
    ROW(43, ldexpf(x, 3));
    ROW(44, isnan(x) ? 1.0f : isinf(x * 1e38f) ? 2.0f : 3.0f);
    ROW(45, sinhf(y));
    ROW(46, normcdff(y));
    ROW(47, 1.0f / x);
}

extern "C" __global__ void double_math(const double* a, const double* b, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i];
    ROW(0, sin(x));
    ROW(1, cos(x));
    ROW(2, tan(x));
    ROW(3, exp(y));
    ROW(4, exp2(y));
    ROW(5, expm1(y));
    ROW(6, log(fabs(x)));
    ROW(7, log2(fabs(x)));
    ROW(8, log1p(fabs(x)));
    ROW(9, pow(fabs(x), y));
    ROW(10, sqrt(fabs(x)));
    ROW(11, rsqrt(fabs(x)));
    ROW(12, cbrt(x));
    ROW(13, hypot(x, y));
    ROW(14, erf(y));
    ROW(15, tanh(y));
    ROW(16, atan2(x, y));
    ROW(17, fmod(x, y));
    ROW(18, floor(x));
    ROW(19, ceil(x));
    ROW(20, trunc(x));
    ROW(21, round(x));
    ROW(22, rint(x));
    ROW(23, fmin(x, y));
    ROW(24, fmax(x, y));
    ROW(25, fma(x, y, 1.5));
    ROW(26, x / y);
    ROW(27, copysign(x, y));
    ROW(28, __dadd_rz(x, y));
    ROW(29, __dmul_ru(x, y));
    ROW(30, __fma_rd(x, y, 1.0));
    ROW(31, __ddiv_rz(x, y));
    ROW(32, __dsqrt_ru(fabs(x)));
    ROW(33, 1.0 / x);
    ROW(34, (double)(float)x);
    ROW(35, (double)(long long)x);
    ROW(36, lgamma(fabs(y) + 1.0));
    ROW(37, asin(x / 200.0));
    ROW(38, (double)__double2int_rn(x));
    ROW(39, (double)(unsigned long long)fabs(x));
}

extern "C" __global__ void integers(const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i];
    unsigned u = x, v = y;
    ROW(0, x / y);
    ROW(1, x % y);
    ROW(2, u / v);
    ROW(3, u % v);
    ROW(4, x / 7);
    ROW(5, __mulhi(x, y));
    ROW(6, __umulhi(u, v));
    ROW(7, __mul24(x, y));
    ROW(8, __sad(x, y, v));
    ROW(9, __popc(x));
    ROW(10, __clz(x));
    ROW(11, __ffs(x));
    ROW(12, __brev(x));
    ROW(13, __byte_perm(u, v, 0x3715));
    ROW(14, __funnelshift_l(u, v, y));
    ROW(15, __funnelshift_rc(u, v, y));
    ROW(16, abs(x));
    ROW(17, min(x, y));
    ROW(18, max(u, v));
    ROW(19, (x & y) ^ (x | ~y));
    ROW(20, x >> (y & 31));
    ROW(21, u >> (v & 31));
    ROW(22, x << (y & 31));
    ROW(23, __dp4a(x, y, 5));
    ROW(24, __hadd(x, y));
    ROW(25, (int)(short)x + (int)(signed char)y);
    ROW(26, (x > y && x != 0) || y == 3 ? x : y);
    ROW(27, x * y + 3);
    ROW(28, __vabsdiffu4(u, v));
    ROW(29, __float_as_int((float)x));
    ROW(30, (int)((float)x * 0.37f));
    ROW(31, __float2int_ru((float)x * 0.37f));
    ROW(32, !x + !!y);
    ROW(33, (u >> 5) & 0x3ff);
    ROW(34, __fns(u | 1, 0, 1));
    switch (u & 15) {
        case 0: x += 1; break;
        case 1: x = y * 3; break;
        case 2: x ^= 0x55; break;
        case 3: x -= y; break;
        case 4: x = ~y; break;
        case 5: x = y / 3; break;
        case 6: x *= 17; break;
        case 7: x = x > y; break;
        case 8: x = __popc(y); break;
        default: x = -y;
    }
    ROW(35, x);
}

extern "C" __global__ void longs(const long long* a, const long long* b, long long* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    unsigned long long u = x, v = y;
    ROW(0, x / y);
    ROW(1, x % y);
    ROW(2, u / v);
    ROW(3, u % v);
    ROW(4, x / 10);
    ROW(5, __mul64hi(x, y));
    ROW(6, __umul64hi(u, v));
    ROW(7, __popcll(x));
    ROW(8, __clzll(x));
    ROW(9, __ffsll(x));
    ROW(10, __brevll(x));
    ROW(11, x >> (y & 63));
    ROW(12, u >> (v & 63));
    ROW(13, x << (y & 63));
    ROW(14, llabs(x));
    ROW(15, min(x, y));
    ROW(16, max(u, v));
    ROW(17, x * y - 1);
    ROW(18, (long long)(double)x);
    ROW(19, (long long)(float)u);
    __int128 wide = (__int128)x * y + x;
    ROW(20, (long long)(wide >> 64));
    ROW(21, (long long)wide);
    unsigned __int128 sum = ((unsigned __int128)u << 64 | v) + v;
    ROW(22, (long long)(sum >> 64));
    ROW(23, __double_as_longlong((double)u));
    ROW(24, x == y ? 1 : x < y ? 2 : 3);
}

template <int width>
__device__ int sum_of(int value) {
    for (int offset = width / 2; offset; offset /= 2) value += __shfl_xor_sync(~0u, value, offset, width);
    return value;
}

// Launched with one dimension of 64 threads a block and n a multiple of 64.
extern "C" __global__ void warps(const int* a, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = a[i], lane = threadIdx.x % 32;
    ROW(0, sum_of<32>(x));
    ROW(1, sum_of<8>(x));
    ROW(2, __shfl_up_sync(~0u, x, 3));
    ROW(3, __shfl_down_sync(~0u, x, 3, 16));
    ROW(4, __shfl_sync(~0u, x, lane * 7));
    ROW(5, __ballot_sync(~0u, x > 0));
    ROW(6, __all_sync(~0u, x > -1000) + 2 * __any_sync(~0u, x == a[0]));
    int even = 0;
    if (lane % 2 == 0) even = __popc(__activemask());
    ROW(7, even);
    ROW(8, __match_any_sync(~0u, x & 3));
    int same = 0;
    __match_all_sync(~0u, lane / 32, &same);
    ROW(9, same);
    __syncwarp();
    ROW(10, __syncthreads_count(x > 0));
    ROW(11, __syncthreads_and(x > -1000) + 2 * __syncthreads_or(x == a[0]));
}

struct Item {
    float weights[3];
    int count;
};

__constant__ float coefficients[4] = {0.5f, 1.5f, -2.0f, 4.0f};
__device__ int counter;

__device__ __noinline__ float polynomial(float x, int degree) {
    float sum = 0.0f;
    for (int k = 0; k < degree; k++) {
        if (k > 3) return sum * 2.0f;
        sum = sum * x + coefficients[k];
    }
    return sum;
}

__device__ __noinline__ Item scaled(Item item, float by) {
    for (int k = 0; k < 3; k++) item.weights[k] *= by;
    item.count += (int)polynomial(by, 1);
    return item;
}

extern "C" __global__ void structures(const float4* a, Item item, float* out, int n) {
    extern __shared__ float staged[];
    __shared__ double half_sums[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 x = a[i];
    staged[threadIdx.x] = x.x;
    half_sums[threadIdx.x] = 0.5 * x.y;
    __syncthreads();
    ROW(0, staged[63 - threadIdx.x]);
    ROW(1, (float)half_sums[(threadIdx.x + 1) % 64]);
    float local[8];
    for (int k = 0; k < 8; k++) local[k] = x.z * k;
    ROW(2, local[(i * 5 + n) % 8]);
    ROW(3, coefficients[i % 4] + item.weights[i % 3]);
    ROW(4, polynomial(x.w, i % 7));
    Item changed = scaled(item, x.x);
    ROW(5, changed.weights[i % 3] + changed.count);
    atomicAdd(&counter, 1);
    ROW(6, polynomial(x.x, 2) + polynomial(x.y, 3));
}

// bins: [0] add, [1] max, [2] min, [3] or, [4] xor, [5] and, [6] inc, [7] exch, [8..] histogram.
extern "C" __global__ void atomics(const int* a, int* bins, float* sums, double* wide, int* out, int n) {
    __shared__ int block_sum;
    __shared__ float block_float;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) block_sum = 0, block_float = 0.0f;
    __syncthreads();
    int x = a[i];
    ROW(0, atomicAdd(bins, 1));
    atomicMax(bins + 1, x);
    atomicMin(bins + 2, x);
    atomicOr(bins + 3, x);
    atomicXor(bins + 4, x);
    atomicAnd(bins + 5, x);
    ROW(1, (int)atomicInc((unsigned*)bins + 6, 9));
    atomicExch(bins + 7, 42);
    atomicAdd(bins + 8 + (x & 7), 1);
    atomicAdd(sums, 1.0f);
    atomicAdd(wide, (double)x);
    atomicAdd((unsigned long long*)wide + 1, (unsigned long long)x);
    atomicAdd(&block_sum, x);
    atomicAdd(&block_float, 0.5f);
    int old = bins[16], assumed;  // the usual compare-and-swap loop
    do {
        assumed = old;
        old = atomicCAS(bins + 16, assumed, assumed + x);
    } while (assumed != old);
    __threadfence();
    __syncthreads();
    ROW(2, block_sum + (int)(2.0f * block_float));
}
