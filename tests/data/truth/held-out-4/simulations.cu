// Kernels of the kinds that benchmark suites have: grids, graphs, factorizations, particles.

// Heat on a chip, two steps in one launch: blocks of 16 by 16 overlap by two cells a side.
extern "C" __global__ void heat_pyramid(int steps, const float* power, const float* in, float* out,
                                        int columns, int rows, int border, float capacity, float rx,
                                        float ry, float rz) {
  __shared__ float now[16][16], source[16][16], next[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, inner = 16 - steps * 2;
  int top = inner * blockIdx.y - border, left = inner * blockIdx.x - border;
  int y = top + ty, x = left + tx, at = columns * y + x;
  if (y >= 0 && y < rows && x >= 0 && x < columns) {
    now[ty][tx] = in[at];
    source[ty][tx] = power[at];
  }
  __syncthreads();
  int first_y = top < 0 ? -top : 0, last_y = top + 15 > rows - 1 ? 15 - (top + 16 - rows) : 15;
  int first_x = left < 0 ? -left : 0;
  int last_x = left + 15 > columns - 1 ? 15 - (left + 16 - columns) : 15;
  int north = max(ty - 1, first_y), south = min(ty + 1, last_y);
  int west = max(tx - 1, first_x), east = min(tx + 1, last_x);
  bool computed = false;
  for (int i = 0; i < steps; i++) {
    computed = tx >= i + 1 && tx <= 14 - i && ty >= i + 1 && ty <= 14 - i && tx >= first_x &&
               tx <= last_x && ty >= first_y && ty <= last_y;
    if (computed)
      next[ty][tx] = now[ty][tx] + capacity * (source[ty][tx] +
                     (now[south][tx] + now[north][tx] - 2.0f * now[ty][tx]) * ry +
                     (now[ty][east] + now[ty][west] - 2.0f * now[ty][tx]) * rx +
                     (80.0f - now[ty][tx]) * rz);
    __syncthreads();
    if (i == steps - 1) break;
    if (computed) now[ty][tx] = next[ty][tx];
    __syncthreads();
  }
  if (computed) out[at] = next[ty][tx];
}

// Cheapest ways down a wall, 20 rows in one launch: blocks of 256 overlap by 20 columns a side.
extern "C" __global__ void ways_down(int rows, const int* wall, const int* in, int* out,
                                     int columns, int border) {
  __shared__ int before[256], after[256];
  int tx = threadIdx.x, inner = 256 - rows * 2, left = inner * blockIdx.x - border, x = left + tx;
  int first = left < 0 ? -left : 0;
  int last = left + 255 > columns - 1 ? 255 - (left + 256 - columns) : 255;
  int west = max(tx - 1, first), east = min(tx + 1, last);
  bool valid = tx >= first && tx <= last, computed = false;
  if (x >= 0 && x < columns) before[tx] = in[x];
  __syncthreads();
  for (int i = 0; i < rows; i++) {
    computed = tx >= i + 1 && tx <= 254 - i && valid;
    if (computed)
      after[tx] = min(before[west], min(before[tx], before[east])) + wall[columns * i + x];
    __syncthreads();
    if (i == rows - 1) break;
    if (computed) before[tx] = after[tx];
    __syncthreads();
  }
  if (computed) out[x] = after[tx];
}

// Blocks along a diagonal of the table that aligns two sequences: 16 threads, 31 fronts.
extern "C" __global__ void align_diagonal(const int* similar, int* table, int columns, int penalty,
                                          int diagonal) {
  __shared__ int part[17][17], score[16][16];
  int tx = threadIdx.x, bx = blockIdx.x, by = diagonal - 1 - bx;
  int base = columns * 16 * by + 16 * bx;
  if (tx == 0) part[0][0] = table[base];
  for (int y = 0; y < 16; y++) score[y][tx] = similar[base + columns * (y + 1) + tx + 1];
  __syncthreads();
  part[tx + 1][0] = table[base + columns * (tx + 1)];
  __syncthreads();
  part[0][tx + 1] = table[base + tx + 1];
  __syncthreads();
  for (int front = 0; front < 31; front++) {
    int x = front < 16 ? tx + 1 : tx + front - 14, y = front < 16 ? front - tx + 1 : 16 - tx;
    if (tx <= (front < 16 ? front : 30 - front))
      part[y][x] = max(part[y - 1][x - 1] + score[y - 1][x - 1],
                       max(part[y][x - 1] - penalty, part[y - 1][x] - penalty));
    __syncthreads();
  }
  for (int y = 0; y < 16; y++) table[base + columns * (y + 1) + tx + 1] = part[y + 1][tx + 1];
}

// The first half of a diffusion that keeps edges: gradients and a coefficient for each pixel.
extern "C" __global__ void diffusion_factors(const float* image, float* east, float* west,
                                             float* north, float* south, float* factor, int columns,
                                             int rows, float q0) {
  __shared__ float tile[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
  int at = y * columns + x;
  float c = image[at];
  tile[ty][tx] = c;
  __syncthreads();
  float up = ty > 0 ? tile[ty - 1][tx] : image[max(y - 1, 0) * columns + x];
  float low = ty < 15 ? tile[ty + 1][tx] : image[min(y + 1, rows - 1) * columns + x];
  float left = tx > 0 ? tile[ty][tx - 1] : image[y * columns + max(x - 1, 0)];
  float right = tx < 15 ? tile[ty][tx + 1] : image[y * columns + min(x + 1, columns - 1)];
  float n = up - c, s = low - c, w = left - c, e = right - c;
  float squares = (n * n + s * s + w * w + e * e) / (c * c), sum = (n + s + w + e) / c;
  float over = 0.5f * squares - (1.0f / 16.0f) * (sum * sum), under = 1.0f + 0.25f * sum;
  float q = over / (under * under);
  float k = 1.0f / (1.0f + (q - q0) / (q0 * (1.0f + q0)));
  factor[at] = k < 0.0f ? 0.0f : k > 1.0f ? 1.0f : k;
  east[at] = e, west[at] = w, south[at] = s, north[at] = n;
}

// The blocks below and right of a factored one: products of 16 by 16.
extern "C" __global__ void lu_inner(float* m, int size, int offset) {
  __shared__ float row[16][16], column[16][16];
  int tx = threadIdx.x, ty = threadIdx.y;
  int y = offset + (blockIdx.y + 1) * 16, x = offset + (blockIdx.x + 1) * 16;
  row[ty][tx] = m[(offset + ty) * size + x + tx];
  column[ty][tx] = m[(y + ty) * size + offset + tx];
  __syncthreads();
  float sum = 0.0f;
  for (int k = 0; k < 16; k++) sum += column[ty][k] * row[k][tx];
  m[(y + ty) * size + x + tx] -= sum;
}

// The blocks in the row and the column of a factored one: 32 threads, halves for rows and columns.
extern "C" __global__ void lu_edges(float* m, int size, int offset) {
  __shared__ float diagonal[16][16], row[16][16], column[16][16];
  int at = threadIdx.x % 16, step = (blockIdx.x + 1) * 16;
  if (threadIdx.x < 16) {
    for (int k = 0; k < 8; k++) diagonal[k][at] = m[(offset + k) * size + offset + at];
    for (int k = 0; k < 16; k++) row[k][at] = m[(offset + k) * size + offset + step + at];
  } else {
    for (int k = 8; k < 16; k++) diagonal[k][at] = m[(offset + k) * size + offset + at];
    for (int k = 0; k < 16; k++) column[k][at] = m[(offset + step + k) * size + offset + at];
  }
  __syncthreads();
  if (threadIdx.x < 16) {
    for (int i = 1; i < 16; i++)
      for (int j = 0; j < i; j++) row[i][at] -= diagonal[i][j] * row[j][at];
  } else {
    for (int i = 0; i < 16; i++) {
      for (int j = 0; j < i; j++) column[at][i] -= column[at][j] * diagonal[j][i];
      column[at][i] /= diagonal[i][i];
    }
  }
  __syncthreads();
  if (threadIdx.x < 16) {
    for (int k = 1; k < 16; k++) m[(offset + k) * size + offset + step + at] = row[k][at];
  } else {
    for (int k = 0; k < 16; k++) m[(offset + step + k) * size + offset + at] = column[k][at];
  }
}

// One level of a breadth-first search: the vertices of the frontier mark and cost their neighbours.
extern "C" __global__ void expand_frontier(const int2* vertex, const int* edge, bool* frontier,
                                           bool* reached, const bool* visited, int* cost, int n) {
  int v = blockIdx.x * 512 + threadIdx.x;
  if (v < n && frontier[v]) {
    frontier[v] = false;
    for (int e = vertex[v].x; e < vertex[v].x + vertex[v].y; e++) {
      int to = edge[e];
      if (!visited[to]) {
        cost[to] = 1;
        reached[to] = true;
      }
    }
  }
}

// A layer of a perceptron, forward: products of 16 inputs and 16 units, summed by a modulo tree.
extern "C" __global__ void layer_forward(const float* input, float* products, float* partial,
                                         int units) {
  __shared__ float unit[16], weight[16][16];
  int by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
  int at = (units + 1) * 16 * by + (units + 1) * ty + tx + 1 + units + 1;
  if (tx == 0) unit[ty] = input[16 * by + ty + 1];
  __syncthreads();
  weight[ty][tx] = products[at];
  __syncthreads();
  weight[ty][tx] = weight[ty][tx] * unit[ty];
  __syncthreads();
  for (int i = 1; i <= __log2f(16); i++) {
    int power = __powf(2, i);
    if (ty % power == 0) weight[ty][tx] += weight[ty + power / 2][tx];
    __syncthreads();
  }
  products[at] = weight[ty][tx];
  if (tx == 0) partial[by * units + ty] = weight[tx][ty];
}

// The weights of a layer adjusted with momentum, in double precision.
extern "C" __global__ void layer_adjust(const float* delta, int units, const float* value,
                                        float* weight, float* before) {
  int at = (units + 1) * (16 * blockIdx.y + threadIdx.y + 1) + threadIdx.x + 1;
  int y = 16 * blockIdx.y + threadIdx.y + 1, x = threadIdx.x + 1;
  weight[at] += 0.3 * delta[x] * value[y] + 0.3 * before[at];
  before[at] = 0.3 * delta[x] * value[y] + 0.3 * before[at];
}

// A step of Gaussian elimination: blocks of 4 by 4 threads.
extern "C" __global__ void eliminate(const float* factor, float* a, float* b, int size, int step) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= size - 1 - step || y >= size - step) return;
  a[size * (x + 1 + step) + y + step] -=
      factor[size * (x + 1 + step) + step] * a[size * step + y + step];
  if (y == 0) b[x + 1 + step] -= factor[size * (x + 1 + step) + step] * b[step];
}

// The nearest of a few centres for each point of 34 features, a thread per point.
extern "C" __global__ void assign_clusters(const float* feature, const float* centre, int* cluster,
                                           int points, int features, int clusters) {
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= points) return;
  int index = -1;
  float least = 3.4e38f;
  for (int k = 0; k < clusters; k++) {
    float distance = 0.0f;
    for (int f = 0; f < features; f++) {
      float d = feature[(size_t)f * points + p] - centre[k * features + f];
      distance += d * d;
    }
    if (distance < least) least = distance, index = k;
  }
  cluster[p] = index;
}

struct Four {
  double v, x, y, z;
};

// Forces in double precision between particles of boxes that touch: a block per box.
extern "C" __global__ void box_forces(double factor, const int* many, const int* neighbour,
                                      const Four* position, const double* charge,
                                      Four* force) {
  __shared__ Four own[100], other[100];
  __shared__ double charges[100];
  int box = blockIdx.x, tx = threadIdx.x;
  if (tx < 100) own[tx] = position[box * 100 + tx];
  __syncthreads();
  for (int k = 0; k < 1 + many[box]; k++) {
    int at = k == 0 ? box : neighbour[box * 26 + k - 1];
    if (tx < 100) other[tx] = position[at * 100 + tx], charges[tx] = charge[at * 100 + tx];
    __syncthreads();
    if (tx < 100) {
      for (int j = 0; j < 100; j++) {
        double r2 = own[tx].v + other[j].v -
                    (own[tx].x * other[j].x + own[tx].y * other[j].y + own[tx].z * other[j].z);
        double v = exp(-factor * r2), s = 2.0 * v;
        double dx = own[tx].x - other[j].x, dy = own[tx].y - other[j].y;
        double dz = own[tx].z - other[j].z;
        force[box * 100 + tx].v += charges[j] * v;
        force[box * 100 + tx].x += charges[j] * s * dx;
        force[box * 100 + tx].y += charges[j] * s * dy;
        force[box * 100 + tx].z += charges[j] * s * dz;
      }
    }
    __syncthreads();
  }
}

// Fluxes of a gas through the four faces of cells without an order: a thread per cell.
extern "C" __global__ void cell_fluxes(int cells, const int* neighbour, const float* normal,
                                       const float* state, float* flux) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  float density = state[i], mx = state[i + cells], my = state[i + 2 * cells];
  float mz = state[i + 3 * cells], energy = state[i + 4 * cells];
  float vx = mx / density, vy = my / density, vz = mz / density;
  float square = vx * vx + vy * vy + vz * vz, speed = sqrtf(square);
  float pressure = 0.4f * (4.0f * energy - 0.5f * density * square);
  float sound = sqrtf(1.4f * pressure / density);
  float sum[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int j = 0; j < 4; j++) {
    int to = neighbour[i + j * cells];
    float nx = normal[i + (j * 3) * cells], ny = normal[i + (j * 3 + 1) * cells];
    float nz = normal[i + (j * 3 + 2) * cells], area = sqrtf(nx * nx + ny * ny + nz * nz);
    if (to >= 0) {
      float d = state[to], x = state[to + cells], y = state[to + 2 * cells];
      float z = state[to + 3 * cells], e = state[to + 4 * cells];
      float ux = x / d, uy = y / d, uz = z / d, s = ux * ux + uy * uy + uz * uz;
      float p = 0.4f * (4.0f * e - 0.5f * d * s), c = sqrtf(1.4f * p / d);
      float factor = -area * 0.2f * 0.5f * (speed + sqrtf(s) + sound + c);
      sum[0] += factor * (density - d), sum[4] += factor * (energy - e);
      sum[1] += factor * (mx - x), sum[2] += factor * (my - y), sum[3] += factor * (mz - z);
      float across = 0.5f * (nx * (vx + ux) + ny * (vy + uy) + nz * (vz + uz));
      sum[0] += across * (density + d), sum[4] += across * (energy + pressure + e + p);
      sum[1] += across * (mx + x) + 0.5f * nx * (pressure + p);
      sum[2] += across * (my + y) + 0.5f * ny * (pressure + p);
      sum[3] += across * (mz + z) + 0.5f * nz * (pressure + p);
    } else if (to == -1) {
      sum[1] += nx * pressure, sum[2] += ny * pressure, sum[3] += nz * pressure;
    }
  }
#pragma unroll
  for (int k = 0; k < 5; k++) flux[i + k * cells] = sum[k];
}

// Distances of places from one place, a thread per place.
extern "C" __global__ void distances(const float2* place, float* distance, int n, float x,
                                     float y) {
  int i = blockDim.x * (gridDim.x * blockIdx.y + blockIdx.x) + threadIdx.x;
  if (i < n)
    distance[i] = (float)sqrt((x - place[i].x) * (x - place[i].x) +
                              (y - place[i].y) * (y - place[i].y));
}

// What a new centre would save for each point of many dimensions, a thread per point.
extern "C" __global__ void gain_of_centre(int n, int dimensions, long long centre, const float* x,
                                          const float* weight, const float* cost, float* lower) {
  extern __shared__ float middle[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0)
    for (int d = 0; d < dimensions; d++) middle[d] = x[d * n + centre];
  __syncthreads();
  if (i >= n) return;
  float distance = 0.0f;
  for (int d = 0; d < dimensions; d++) {
    float step = x[d * n + i] - middle[d];
    distance += step * step;
  }
  float now = distance * weight[i];
  lower[i] = now < cost[i] ? now - cost[i] : 0.0f;
}
