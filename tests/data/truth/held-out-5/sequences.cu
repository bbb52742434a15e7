// Hashes, ciphers, strings, genomes, sorting and tables.

__constant__ unsigned rounds[64];

// SHA-256 of a block of 64 bytes a thread.
extern "C" __global__ void sha256_blocks(const unsigned* message, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned w[64];
  for (int t = 0; t < 16; t++) w[t] = __byte_perm(message[i * 16 + t], 0, 0x0123);
  auto turn = [](unsigned x, int n) { return __funnelshift_r(x, x, n); };
  for (int t = 16; t < 64; t++) {
    unsigned s0 = turn(w[t - 15], 7) ^ turn(w[t - 15], 18) ^ w[t - 15] >> 3;
    unsigned s1 = turn(w[t - 2], 17) ^ turn(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  unsigned h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned s[8];
  for (int k = 0; k < 8; k++) s[k] = h[k];
  for (int t = 0; t < 64; t++) {
    unsigned e1 = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25);
    unsigned one = s[7] + e1 + ((s[4] & s[5]) ^ (~s[4] & s[6])) + rounds[t] + w[t];
    unsigned e0 = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
    unsigned two = e0 + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k > 0; k--) s[k] = s[k - 1];
    s[4] += one;
    s[0] = one + two;
  }
  for (int k = 0; k < 8; k++) out[i * 8 + k] = h[k] + s[k];
}

// Rounds of a cipher by a table in shared memory: a block of 16 bytes a thread.
extern "C" __global__ void cipher_tables(const uint4* in, uint4* out, const unsigned* table,
                                         const unsigned* key, int n) {
  __shared__ unsigned t[256], k[44];
  if (threadIdx.x < 256) t[threadIdx.x] = table[threadIdx.x];
  if (threadIdx.x < 44) k[threadIdx.x] = key[threadIdx.x];
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    uint4 x = in[i];
    unsigned s[4] = {x.x ^ k[0], x.y ^ k[1], x.z ^ k[2], x.w ^ k[3]};
    for (int round = 1; round < 11; round++) {
      unsigned r[4];
      for (int c = 0; c < 4; c++) {
        unsigned a = t[s[c] & 255], b = t[s[(c + 1) % 4] >> 8 & 255];
        unsigned d = t[s[(c + 2) % 4] >> 16 & 255], e = t[s[(c + 3) % 4] >> 24];
        r[c] = a ^ __funnelshift_l(b, b, 8) ^ __funnelshift_l(d, d, 16) ^
               __funnelshift_l(e, e, 24) ^ k[4 * round + c];
      }
      for (int c = 0; c < 4; c++) s[c] = r[c];
    }
    out[i] = make_uint4(s[0], s[1], s[2], s[3]);
  }
}

// CRC-32 of pieces of 1024 bytes: a thread per piece, byte by byte, by a table.
extern "C" __global__ void checksum_pieces(const unsigned char* data, unsigned* out,
                                           const unsigned* table, int pieces) {
  __shared__ unsigned t[256];
  for (int k = threadIdx.x; k < 256; k += blockDim.x) t[k] = table[k];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pieces) return;
  unsigned crc = ~0u;
  for (int k = 0; k < 1024; k++) crc = t[(crc ^ data[(size_t)i * 1024 + k]) & 255] ^ crc >> 8;
  out[i] = ~crc;
}

// The least edits between pairs of words of 32 letters: a row of the table in local memory.
extern "C" __global__ void edit_distance(const unsigned char* a, const unsigned char* b, int* out,
                                         int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned char row[33];
  for (int k = 0; k <= 32; k++) row[k] = k;
  for (int y = 0; y < 32; y++) {
    int corner = row[0], letter = a[i * 32 + y];
    row[0] = y + 1;
    for (int x = 0; x < 32; x++) {
      int cost = corner + (letter != b[i * 32 + x]);
      corner = row[x + 1];
      row[x + 1] = min(cost, min((int)row[x], corner) + 1);
    }
  }
  out[i] = row[32];
}

// How many keys a filter of bits may hold: four hashes a key, random words.
extern "C" __global__ void test_filter(const unsigned* bits, const unsigned* key,
                                       unsigned char* found, int n, unsigned mask) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = key[i], step = h * 0x85ebca6bu | 1u;
  bool all = true;
  for (int k = 0; k < 4; k++, h += step) {
    unsigned x = h ^ h >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    all = all && (bits[(x & mask) >> 5] >> (x & 31) & 1);
  }
  found[i] = all;
}

// How often each word of eight letters occurs in a genome: atomics in global memory.
extern "C" __global__ void count_words(const unsigned char* base, unsigned* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 8 > n) return;
  unsigned word = 0;
  for (int k = 0; k < 8; k++) word = word << 2 | (base[i + k] & 3);
  atomicAdd(count + word, 1u);
}

// Two sorted arrays merged: each thread finds its part by bisection and merges eight.
extern "C" __global__ void merge_sorted(const int* a, const int* b, int* out, int n) {
  int at = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= 2 * n) return;
  int low = max(0, at - n), high = min(at, n);
  while (low < high) {
    int middle = (low + high) / 2;
    if (a[middle] <= b[at - 1 - middle])
      low = middle + 1;
    else
      high = middle;
  }
  int i = low, j = at - low;
  for (int k = 0; k < 8; k++) {
    bool first = j >= n || (i < n && a[i] <= b[j]);
    out[at + k] = first ? a[i++] : b[j++];
  }
}

// Where a pattern of eight bytes begins in a text: a thread per byte.
extern "C" __global__ void find_pattern(const char* text, int n, unsigned long long pattern,
                                        int* count, int* places) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 8 > n) return;
  for (int k = 0; k < 8; k++)
    if (text[i + k] != (char)(pattern >> 8 * k)) return;
  int at = atomicAdd(count, 1);
  if (at < 1024) places[at] = i;
}

// A pass of a radix sort by 4 bits: counts of a block's keys, digit by digit.
extern "C" __global__ void count_digits(const unsigned* key, unsigned* count, int n, int shift) {
  __shared__ unsigned bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int k = 0; k < 16; k++) {
    int i = (blockIdx.x * 16 + k) * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(bins + (key[i] >> shift & 15), 1u);
  }
  __syncthreads();
  if (threadIdx.x < 16) count[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}
