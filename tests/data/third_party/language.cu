// What C++ and its runtime bring along, as people write them.
#include <cuda/std/cassert>
struct Particle { char tag; double mass; short kind; float pos[3]; bool alive; };
struct __attribute__((packed)) Packed { char a; int b; double c; };
struct Bits { unsigned a : 5, b : 11, c : 16; int d : 7; };
union Both { float f; unsigned u; unsigned char b[4]; };
extern "C" __global__ void layouts(const Particle* p, const Packed* q, Bits* bits, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  Particle v = p[i];
  Both both; both.f = v.pos[1];
  Bits z = bits[i]; z.b = z.a * 3; z.d = z.d - 1; bits[i] = z;
  out[i] = v.tag + (float)v.mass + v.kind + v.pos[0] * v.pos[2] + v.alive + both.b[3] + (both.u >> 31);
  char c = q[i].a; int b; memcpy(&b, &q[i].b, 4); double d; memcpy(&d, &q[i].c, 8);
  out[n + i] = c + b + (float)d;
}
extern "C" __global__ void copies(const unsigned char* x, unsigned char* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  unsigned char local[24];
  memset(local, 7, sizeof local);
  memcpy(local + 3, x + i * 13, 13);
  int k = x[i * 13] % 20;
  local[k] += 1;
  for (int j = 0; j < 24; ++j) out[i * 24 + j] = local[j];
}
extern "C" __global__ void checked(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(x != nullptr);
  if (i < n) { assert(x[i] >= 0 && "negative input"); out[i] = x[i] + 1; }
}
extern "C" __global__ void prints(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { out[i] = x[i] + 1; if (x[i] == 3) printf("thread %d of %d: %f %s %c %5.2f %lld %u %x %%\n", i, n, (float)x[i] / 2, "text", 'q', 1.0 / 3, (long long)x[i] << 40, 7u, 255); }
  if (i == 0) printf("done\n");
}
