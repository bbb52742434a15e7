// Transpose 3: squares of 64 x 64 elements, and 16 bytes per global load and store.
//
// b (width x height) = a (height x width) transposed, float32, row-major, any sizes. Where rows of a or b
// are no multiple of 4 long, they begin anywhere in a line, and words are moved one by one.
//
// What to expect: a row of a square is 256 bytes, twice those of `transpose-padded`, and DRAM moves longer
// pieces faster. A quarter of the global instructions move the same sectors. The rows in shared memory
// are padded to 65 words; a thread stores the words of its 16 bytes one by one, since it reads a column,
// and two lanes meet at a bank.

constexpr int EDGE = 64, QUADS = EDGE / 4, ROWS = 16;

extern "C" __global__ void transpose_vectorized(const float* a, float* b, int width, int height) {
  __shared__ float square[EDGE][EDGE + 1];
  int quad = 4 * threadIdx.x;
  int x = blockIdx.x * EDGE + quad, y = blockIdx.y * EDGE + threadIdx.y;
#pragma unroll
  for (int j = 0; j < EDGE; j += ROWS) {
    if (y + j < height && x < width) {
      const float* from = a + (size_t)(y + j) * width + x;
      float* to = &square[threadIdx.y + j][quad];
      if (width % 4 == 0) {
        float4 words = *reinterpret_cast<const float4*>(from);
        to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
      } else {
        for (int i = 0; i < 4 && x + i < width; ++i) to[i] = from[i];
      }
    }
  }
  __syncthreads();

  x = blockIdx.y * EDGE + quad, y = blockIdx.x * EDGE + threadIdx.y;
#pragma unroll
  for (int j = 0; j < EDGE; j += ROWS) {
    if (y + j < width && x < height) {
      int column = threadIdx.y + j;
      float* to = b + (size_t)(y + j) * height + x;
      if (height % 4 == 0) {
        *reinterpret_cast<float4*>(to) = make_float4(
            square[quad][column], square[quad + 1][column], square[quad + 2][column],
            square[quad + 3][column]);
      } else {
        for (int i = 0; i < 4 && x + i < height; ++i) to[i] = square[quad + i][column];
      }
    }
  }
}
