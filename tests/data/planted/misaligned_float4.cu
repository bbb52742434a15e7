// A float array read four elements at once from its second element on, which is no multiple of 16
// bytes.
//
// launch: --grid 1 --block 64 --arg in:f32[260] --arg out:f32[64]
__global__ void sums(const float* a, float* b) {
  int i = 4 * threadIdx.x;
#ifdef FIXED
  float4 v = make_float4(a[i + 1], a[i + 2], a[i + 3], a[i + 4]);
#else
  float4 v = *reinterpret_cast<const float4*>(a + i + 1);  // BUG memcheck: misaligned
#endif
  b[threadIdx.x] = v.x + v.y + v.z + v.w;
}
