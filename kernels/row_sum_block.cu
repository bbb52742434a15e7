// Row sum 2: the threads of a block add up one row together, 16 bytes at a time.
//
// sums[i] = A[i][0] + ... + A[i][width - 1], float32, row-major. If the width is no multiple of 4, rows
// begin anywhere in a line, and words are loaded one by one.
//
// What to expect: neighboring threads read neighboring words: 16 sectors per request of 16 bytes a lane,
// all of it used, where `row-sum` uses an eighth of each sector at once. Several loads of a thread are
// under way before the first is added, and blocks read the matrix in the order of its addresses. Then the
// sums of the lanes are added by shuffles, and those of the warps in shared memory.

constexpr int WARPS = 8;

extern "C" __global__ void row_sum_block(const float* A, float* sums, int width) {
  __shared__ float warp_sums[WARPS];
  const float* row = A + (size_t)blockIdx.x * width;
  float sum = 0.0f;
  if (width % 4 == 0) {
    const float4* quads = reinterpret_cast<const float4*>(row);
#pragma unroll 8
    for (int j = threadIdx.x; j < width / 4; j += 32 * WARPS) {
      float4 quad = quads[j];
      sum += (quad.x + quad.y) + (quad.z + quad.w);
    }
  } else {
#pragma unroll 8
    for (int j = threadIdx.x; j < width; j += 32 * WARPS) {
      sum += row[j];
    }
  }

  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_down_sync(0xffffffff, sum, distance);
  }
  if (threadIdx.x % 32 == 0) {
    warp_sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < WARPS; ++warp) {
      sum += warp_sums[warp];
    }
    sums[blockIdx.x] = sum;
  }
}
