// Functions that call themselves, directly, through each other or through pointers.
__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
extern "C" __global__ void fib(const int* n, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = fibonacci(n[i]);
}

__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : 3 * even(n - 1) + n; }
extern "C" __global__ void parity(const int* n, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (n[i] % 3) out[i] = even(n[i]);
  else out[i] = odd(n[i]) - even(n[i] / 2);
}

__device__ void sort(int* a, int low, int high) {
  if (low >= high) return;
  int pivot = a[high], i = low;
  for (int j = low; j < high; j++)
    if (a[j] < pivot) { int t = a[i]; a[i] = a[j]; a[j] = t; i++; }
  int t = a[i]; a[i] = a[high]; a[high] = t;
  sort(a, low, i - 1);
  sort(a, i + 1, high);
}
extern "C" __global__ void quicksort(int* a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  sort(a + i * n, 0, n - 1);
}

// An array in each frame, whose elements the frames below must not change.
__device__ __noinline__ int digits(int n, int base) {
  volatile int own[3];
  for (int k = 0; k < 3; k++) own[k] = n * (k + 1);
  if (n == 0) return 0;
  int below = digits(n / base, base);
  return below * 7 + own[n % 3] + own[(n + 1) % 3] * 2;
}
extern "C" __global__ void frames(const int* n, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = digits(n[i], 2 + i % 3);
}

// An expression tree of virtual functions, made by the kernel itself.
struct Node { __device__ virtual float value(float x) const = 0; };
struct Leaf : Node { float factor; __device__ float value(float x) const override { return factor * x; } };
struct Sum : Node {
  const Node *left, *right;
  __device__ float value(float x) const override { return left->value(x) + right->value(x + 1); }
};
struct Product : Node {
  const Node *left, *right;
  __device__ float value(float x) const override { return left->value(x) * right->value(x - 1); }
};
extern "C" __global__ void tree(const float* x, const int* kind, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Leaf a, b; a.factor = 2; b.factor = 3;
  Sum s; s.left = &a; s.right = &b;
  Product p; p.left = &s; p.right = &b;
  Sum top; top.left = &p; top.right = &s;
  const Node* nodes[4] = {&a, &s, &p, &top};
  out[i] = nodes[kind[i]]->value(x[i]);
}

// A table of functions in constant memory; one of them calls through the table again.
typedef int (*Step)(int);
__device__ int halve(int n);
__device__ int triple(int n) { return n * 3 + 1; }
__device__ int stop(int n) { return n; }
__constant__ Step steps[3] = {stop, halve, triple};
__device__ int halve(int n) { return n < 2 ? n : steps[1 + (n / 2 & 1 ? 0 : 1)](n / 2) + 1; }
extern "C" __global__ void table(const int* n, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = steps[n[i] % 3](n[i]);
}
