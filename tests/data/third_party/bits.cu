// Wide integers, as people write them.
#define OP(k, e) out[(k) * n + i] = (long long)(e)
extern "C" __global__ void wide(const long long* a, const long long* b, long long* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  long long x = a[i], y = b[i]; unsigned long long u = x, v = y;
  __int128 p = (__int128)x * y; unsigned __int128 q = (unsigned __int128)u << 40 | v;
  OP(0, p >> 64);
  OP(1, p);
  OP(2, p / 1000003);
  OP(3, p % 1000003);
  OP(4, q / (v | 1));
  OP(5, q % (v | 1));
  OP(6, q >> (y & 127));
  OP(7, (q << (y & 127)) >> 64);
  OP(8, p < (__int128)0);
  OP(9, __umul64hi(u, v));
  OP(10, __mul64hi(x, y));
  OP(11, (p + q) >> 64);
  OP(12, (p - q) >> 60);
  OP(13, __ffsll(x));
  OP(14, __brevll(u));
  OP(15, x / (y | 1));
  OP(16, x % (y | 1));
  OP(17, u / (v | 1));
  OP(18, u % 1000000007ull);
  OP(19, __clzll(x));
  OP(20, llabs(x));
}
