// Additions at random words of tables of several sizes, whose results nobody needs, for
// benchmarks/microbenchmarks.py: many by each thread, and one by each of many threads.

#include "device.cuh"

template <bool FLOAT>
__global__ void add(void* table, u32 words, u32 steps, u32 seed) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
  for (u32 step = 0; step < steps; ++step) {
    u32 place = __umulhi(hashed(thread, step * 977 + seed), words);
    if (FLOAT) atomicAdd(static_cast<float*>(table) + place, 1.0f);
    else atomicAdd(static_cast<u32*>(table) + place, 1u);
  }
}

__global__ void sum(const u32* table, u32 words, bool is_float, u64* total) {
  u64 own = 0;
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    own += is_float ? u64(__uint_as_float(table[i])) : table[i];
  atomicAdd(total, own);
}

template <bool FLOAT>
void measure(void* table, u32 words, u32 blocks, u32 threads, u32 steps, u64* total) {
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  float best = 1e9;
  for (u32 repeat = 0; repeat < 4; ++repeat) {
    float ms;
    CHECK(cudaMemset(table, 0, u64(words) * 4));
    CHECK(cudaMemset(total, 0, 8));
    CHECK(cudaEventRecord(from));
    add<FLOAT><<<blocks, threads>>>(table, words, steps, repeat);
    CHECK(cudaEventRecord(to));
    finish();
    CHECK(cudaEventElapsedTime(&ms, from, to));
    if (repeat && ms < best) best = ms;
  }
  sum<<<264, 256>>>(static_cast<u32*>(table), words, FLOAT, total);
  u64 found;
  CHECK(cudaMemcpy(&found, total, 8, cudaMemcpyDeviceToHost));
  u64 all = u64(blocks) * threads * steps;
  std::printf("%s,%u,%u,%u,%u,%.2f,%.2f,%s\n", FLOAT ? "float" : "int", words / 256, blocks, threads, steps, best * 1e3,
              all / (best * 1e6), found == all ? "right" : "WRONG");
}

int main() {
  u32* table = device_memory<u32>(1 << 24);
  u64* total = device_memory<u64>(1);
  u32 sms = multiprocessors();
  std::printf("type,table_kib,blocks,threads,steps,us,per_ns,sum\n");
  for (u32 kib : {16u, 64u, 128u, 256u, 400u, 512u, 800u, 1024u, 2048u, 8192u, 32768u}) {
    measure<false>(table, kib * 256, sms * 8, 256, 128, total);
    measure<true>(table, kib * 256, sms * 8, 256, 128, total);
    measure<false>(table, kib * 256, sms * 2, 256, 128, total);
    measure<true>(table, kib * 256, sms * 2, 256, 128, total);
    measure<false>(table, kib * 256, 1, 256, 128, total);
    measure<true>(table, kib * 256, 1, 256, 128, total);
    measure<false>(table, kib * 256, 16384, 256, 1, total);
    measure<true>(table, kib * 256, 16384, 256, 1, total);
    measure<false>(table, kib * 256, 16384, 256, 4, total);
  }
}
