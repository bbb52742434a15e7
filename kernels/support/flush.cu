// Empties the L2 of what a launch left there, so that the next one starts cold.
//
// `flush_write` fills a buffer of twice the L2's size: it drives everything else out, but leaves
// dirty lines, and these would be written back inside the next launch's time. `flush_read` then
// reads another buffer as large, which drives the dirty lines out and leaves clean ones.

extern "C" __global__ void flush_write(uint4* buffer, unsigned long long count, unsigned salt) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long start = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;

  for (unsigned long long i = start; i < count; i += step) {
    unsigned noise = ((unsigned)i ^ salt) * 2654435761u;
    buffer[i] = make_uint4(noise, noise ^ 0x9e3779b9u, noise + salt, ~noise);
  }
}

extern "C" __global__ void flush_read(const uint4* buffer, unsigned long long count, unsigned* sink) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long start = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  unsigned mixed = 0;

  for (unsigned long long i = start; i < count; i += step) {
    uint4 value = buffer[i];
    mixed |= value.x ^ value.y ^ value.z ^ value.w;
  }
  // Never true for what `flush_write` leaves in a buffer, but the compiler cannot know.
  if (mixed == 0x5eed5eedu && step == 1) *sink = mixed;
}
