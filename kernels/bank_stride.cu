// Bank conflicts: the threads of a warp read shared memory `stride` words apart.
//
// A block stages 1024 words and each thread gives back the one at (stride * thread) mod 1024, moved
// on by whole warps so that they do not all read the same words. float32, any n; words beyond the
// end are 0.
//
// What to expect: the 32 banks are one word wide, so words a multiple of 32 apart share a bank. At
// stride s gcd(s, 32) threads of a warp meet in each bank, and the load takes as many wavefronts:
// 1 for every odd stride, 2 for stride 2, 32 for stride 32. It is not the stride that costs but
// what it has in common with 32.

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
