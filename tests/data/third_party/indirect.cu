// Functions and arrays that only the run tells.
struct Op { virtual __device__ float apply(float) const = 0; __device__ virtual ~Op() {} };
struct Twice : Op { __device__ float apply(float x) const override { return 2 * x; } };
struct Square : Op { __device__ float apply(float x) const override { return x * x; } };
extern "C" __global__ void virtuals(const float* x, const int* kind, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  Twice t; Square s; const Op* op = kind[i] ? (const Op*)&t : (const Op*)&s;
  out[i] = op->apply(x[i]);
}
__device__ __noinline__ float f_add(float a, float b) { return a + b; }
__device__ __noinline__ float f_mul(float a, float b) { return a * b; }
__device__ __noinline__ float f_sub(float a, float b) { return a - b; }
typedef float (*Fn)(float, float);
__device__ Fn table[3] = {f_add, f_mul, f_sub};
extern "C" __global__ void pointers_table(const float* x, const int* kind, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  out[i] = table[kind[i] % 3](x[i], 3.f);
}
extern "C" __global__ void two_arrays(const float* a, const float* b, float* out, float* other, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  const float* from = i % 3 ? a : b; float* to = i % 2 ? out : other;
  to[i] = from[i] + 1;
}
