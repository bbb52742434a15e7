// Steps of simulations and of solvers.

// Streaming and collision of a lattice with nine directions, structure of arrays, periodic.
extern "C" __global__ void lattice_step(const float* from, float* to, int side, float omega) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, cells = side * side;
  const int dx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, dy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
  float f[9], rho = 0.0f, u = 0.0f, v = 0.0f;
#pragma unroll
  for (int k = 0; k < 9; k++) {
    int a = (x - dx[k] + side) % side, b = (y - dy[k] + side) % side;
    f[k] = from[k * cells + b * side + a];
    rho += f[k];
    u += dx[k] * f[k];
    v += dy[k] * f[k];
  }
  u /= rho;
  v /= rho;
  float square = 1.5f * (u * u + v * v);
#pragma unroll
  for (int k = 0; k < 9; k++) {
    float along = 3.0f * (dx[k] * u + dy[k] * v);
    float weight = k == 0 ? 4.0f / 9 : k < 5 ? 1.0f / 9 : 1.0f / 36;
    float rest = weight * rho * (1.0f + along + 0.5f * along * along - square);
    to[k * cells + y * side + x] = f[k] + omega * (rest - f[k]);
  }
}

// Lennard-Jones forces from lists of neighbours: a thread per atom.
extern "C" __global__ void list_forces(float4* force, const float4* position,
                                       const int* neighbours, int per, int atoms, float cut,
                                       float a, float b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= atoms) return;
  float4 own = position[i];
  float fx = 0.0f, fy = 0.0f, fz = 0.0f;
  for (int k = 0; k < per; k++) {
    float4 p = position[neighbours[k * atoms + i]];
    float x = own.x - p.x, y = own.y - p.y, z = own.z - p.z, r2 = x * x + y * y + z * z;
    if (r2 < cut) {
      float inverse = 1.0f / r2, r6 = inverse * inverse * inverse;
      float f = inverse * r6 * (a * r6 - b);
      fx += x * f;
      fy += y * f;
      fz += z * f;
    }
  }
  force[i] = make_float4(fx, fy, fz, 0.0f);
}

// Cross sections of a material at random energies: bisection, then gathers from two grids.
extern "C" __global__ void look_up_sections(const double* energies, const int* index,
                                            const double* grids, const int* nuclides,
                                            const double* sample, double* out, int n, int points,
                                            int count, int per) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double e = sample[i], sums[5] = {0, 0, 0, 0, 0};
  int low = 0, high = points - 1;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (energies[middle] > e)
      high = middle;
    else
      low = middle;
  }
  for (int k = 0; k < count; k++) {
    int nuclide = nuclides[k], at = index[low * 68 + nuclide];
    const double* below = grids + ((size_t)nuclide * per + at) * 6;
    double f = (below[6] - e) / (below[6] - below[0]);
    for (int s = 0; s < 5; s++) sums[s] += below[7 + s] - f * (below[7 + s] - below[1 + s]);
  }
  for (int s = 0; s < 5; s++) out[(size_t)i * 5 + s] = sums[s];
}

// Tridiagonal systems of 256 unknowns by parallel cyclic reduction: a block per system.
extern "C" __global__ void reduce_tridiagonal(const float* lower, const float* middle,
                                              const float* upper, const float* right, float* out) {
  __shared__ float a[256], b[256], c[256], d[256];
  int i = threadIdx.x, at = blockIdx.x * 256 + i;
  a[i] = i == 0 ? 0.0f : lower[at];
  b[i] = middle[at];
  c[i] = i == 255 ? 0.0f : upper[at];
  d[i] = right[at];
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    int before = max(i - step, 0), after = min(i + step, 255);
    float k1 = a[i] / b[before], k2 = c[i] / b[after];
    if (i < step) k1 = 0.0f;
    if (i + step > 255) k2 = 0.0f;
    float nb = b[i] - c[before] * k1 - a[after] * k2, nd = d[i] - d[before] * k1 - d[after] * k2;
    float na = -a[before] * k1, nc = -c[after] * k2;
    __syncthreads();
    a[i] = na;
    b[i] = nb;
    c[i] = nc;
    d[i] = nd;
    __syncthreads();
  }
  out[at] = d[i] / b[i];
}

// Matrices of 16 by 16 factored in place, lower times its transpose: a block each.
extern "C" __global__ void factor_blocks(float* matrix) {
  __shared__ float m[16][17];
  int x = threadIdx.x, y = threadIdx.y;
  float* own = matrix + (size_t)blockIdx.x * 256;
  m[y][x] = own[y * 16 + x];
  __syncthreads();
  for (int k = 0; k < 16; k++) {
    if (x == k && y == k) m[k][k] = sqrtf(m[k][k]);
    __syncthreads();
    if (x == k && y > k) m[y][k] /= m[k][k];
    __syncthreads();
    if (x > k && y >= x) m[y][x] -= m[y][k] * m[x][k];
    __syncthreads();
  }
  own[y * 16 + x] = x <= y ? m[y][x] : 0.0f;
}

__constant__ float4 wave[1024];

// The sums of waves at points of a volume, of an image from its Fourier samples.
extern "C" __global__ void sum_waves(const float* px, const float* py, const float* pz, float* real,
                                     float* imaginary, int waves) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = px[i], y = py[i], z = pz[i], r = real[i], m = imaginary[i];
  for (int k = 0; k < waves; k++) {
    float angle = 6.2831853f * (wave[k].x * x + wave[k].y * y + wave[k].z * z);
    r += wave[k].w * __cosf(angle);
    m += wave[k].w * __sinf(angle);
  }
  real[i] = r;
  imaginary[i] = m;
}

// Sums of absolute differences of macroblocks over a window of 16 by 16 shifts: a thread a shift.
extern "C" __global__ void search_motion(const unsigned char* current, const unsigned char* before,
                                         unsigned short* out, int width) {
  int x = blockIdx.x * 16, y = blockIdx.y * 16;
  int dx = threadIdx.x, dy = threadIdx.y, sum = 0;
  for (int j = 0; j < 16; j++)
    for (int i = 0; i < 16; i++) {
      int a = current[(y + j) * width + x + i];
      int b = before[(y + j + dy) * (width + 16) + x + i + dx];
      sum += abs(a - b);
    }
  out[((blockIdx.y * gridDim.x + blockIdx.x) * 16 + dy) * 16 + dx] = sum;
}

struct Matrix {
  float2 e[3][3];
};

// Products of complex matrices of 3 by 3 at each site, four links a site: a thread per site.
extern "C" __global__ void multiply_links(const Matrix* a, const Matrix* b, Matrix* c, int sites) {
  int site = blockIdx.x * blockDim.x + threadIdx.x;
  if (site >= sites) return;
  for (int link = 0; link < 4; link++)
    for (int k = 0; k < 3; k++)
      for (int l = 0; l < 3; l++) {
        float2 sum = make_float2(0.0f, 0.0f);
        for (int m = 0; m < 3; m++) {
          float2 p = a[site * 4 + link].e[k][m], q = b[link].e[m][l];
          sum.x += p.x * q.x - p.y * q.y;
          sum.y += p.x * q.y + p.y * q.x;
        }
        c[site * 4 + link].e[k][l] = sum;
      }
}

// A dot product in double: a grid-stride loop, a sum in shared memory, a part per block.
extern "C" __global__ void dot_parts(const double* a, const double* b, double* sum, int n) {
  __shared__ double part[1024];
  part[threadIdx.x] = 0.0;
  for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    part[threadIdx.x] += a[i] * b[i];
  for (int offset = blockDim.x / 2; offset > 0; offset /= 2) {
    __syncthreads();
    if (threadIdx.x < offset) part[threadIdx.x] += part[threadIdx.x + offset];
  }
  if (threadIdx.x == 0) sum[blockIdx.x] = part[0];
}

// Half a step of Gauss and Seidel: the red points of a grid.
extern "C" __global__ void relax_red(float* u, const float* right, int side, float h2) {
  int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
  if (x >= side - 1 || y >= side - 1 || (x + y) % 2 != 0) return;
  int i = y * side + x;
  u[i] = 0.25f * (u[i - 1] + u[i + 1] + u[i - side] + u[i + side] - h2 * right[i]);
}

// A fine grid to one half as fine, in three dimensions, by the mean of eight.
extern "C" __global__ void restrict_grid(const float* fine, float* coarse, int side) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z, wide = 2 * side;
  float sum = 0.0f;
  for (int k = 0; k < 8; k++)
    sum += fine[((size_t)(2 * z + k / 4) * wide + 2 * y + k / 2 % 2) * wide + 2 * x + k % 2];
  coarse[((size_t)z * side + y) * side + x] = sum / 8;
}

// A product of a sparse matrix in coordinates, sorted by nothing: an atomic per entry.
extern "C" __global__ void multiply_entries(const int* row, const int* column, const float* value,
                                            const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(y + row[i], value[i] * x[column[i]]);
}

// Samples of a product of dense matrices at the entries of a sparse one: a warp per entry.
extern "C" __global__ void sample_products(const int* row, const int* column, const float* a,
                                           const float* b, float* out, int n, int size) {
  int entry = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (entry >= n) return;
  const float* p = a + (size_t)row[entry] * size;
  const float* q = b + (size_t)column[entry] * size;
  float sum = 0.0f;
  for (int k = lane; k < size; k += 32) sum += p[k] * q[k];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (lane == 0) out[entry] = sum;
}

// A step of the wavelets of Haar along rows, in shared memory, until one mean is left.
extern "C" __global__ void transform_haar(const float* in, float* out, int width) {
  __shared__ float row[1024], next[1024];
  for (int i = threadIdx.x; i < width; i += blockDim.x) row[i] = in[blockIdx.x * width + i];
  __syncthreads();
  for (int half = width / 2; half > 0; half /= 2) {
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
      next[i] = (row[2 * i] + row[2 * i + 1]) * 0.70710678f;
      next[half + i] = (row[2 * i] - row[2 * i + 1]) * 0.70710678f;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * half; i += blockDim.x) row[i] = next[i];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < width; i += blockDim.x) out[blockIdx.x * width + i] = row[i];
}

// A point by Monte Carlo: paths with a random number generator of their own, a sum a block.
extern "C" __global__ void walk_paths(float* payoff, int steps, float drift, float spread,
                                      float strike, unsigned seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = seed ^ i * 747796405u;
  float price = 100.0f, sum = 0.0f;
  for (int t = 0; t < steps; t++) {
    float u[2];
    for (int k = 0; k < 2; k++) {
      state = state * 747796405u + 2891336453u;
      unsigned word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
      u[k] = ((word >> 22 ^ word) >> 8) * 5.9604645e-8f + 2.9802322e-8f;
    }
    float normal = sqrtf(-2.0f * logf(u[0])) * cosf(6.2831853f * u[1]);
    price *= expf(drift + spread * normal);
    sum += price;
  }
  payoff[i] = fmaxf(sum / steps - strike, 0.0f);
}
