// A tiled matrix product, written in haste: width x width, one thread per element.

constexpr int TILE = 8;

__global__ void hasty(const float* M, const float* N, float* P, int width) {
  __shared__ float Ms[TILE][TILE], Ns[TILE][TILE];
  int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
  float sum = 0;
  for (int phase = 0; phase * TILE < width; phase++) {
    Ms[threadIdx.y][threadIdx.x] = M[row * width + phase * TILE + threadIdx.x];
    Ns[threadIdx.y][threadIdx.x] = N[(phase * TILE + threadIdx.y) * width + column];
    __syncthreads();
    for (int i = 0; i < TILE; i++) {
      sum += Ms[threadIdx.y][i] * Ns[i][threadIdx.x];
    }
  }
  P[row * width + column] = sum;
}
