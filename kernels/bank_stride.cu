// Bank conflicts: the threads of a warp read shared memory `stride` words apart.
//
// A block stages 1024 words. Each thread writes back the word at (stride * thread) mod 1024, shifted
// by a number that depends on the warp, so that warps do not all read the same words. float32, any n;
// words beyond the end are 0.
//
// What to expect: the 32 banks are one word wide, so words a multiple of 32 apart share a bank. At
// stride s, gcd(s, 32) threads of a warp share each bank, and the load takes as many wavefronts:
// 1 for every odd stride, 2 for stride 2, 32 for stride 32. The cost depends on the common factor
// of the stride and 32, not on the stride itself.

extern "C" __global__ void bank_stride(const float* a, float* b, int n, int stride) {
  __shared__ float words[1024];
  int t = threadIdx.x, i = blockIdx.x * 1024 + t;
  words[t] = i < n ? a[i] : 0.0f;
  __syncthreads();

  int turn = (t >> 5) * stride >> 5;
  if (i < n) {
    b[i] = words[(t * stride + turn) & 1023];
  }
}
