// The clock of each SM at a time that all SMs know, for micro-benchmarks in which they act at chosen
// times.
#pragma once

#include "device.cuh"

constexpr int TICKS = 64;       // of the global timer, by which a clock is set
constexpr int LEAD_NS = 20000;  // between the barrier and that time

struct Meeting {
  unsigned arrived;
  unsigned long long start_ns;
};

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

struct Tick {
  unsigned long long ns;
  long long clock;
};

// The next tick of the global timer, and this SM's clock when it was seen.
__device__ Tick next_tick() {
  unsigned long long last = nanoseconds(), now;
  while ((now = nanoseconds()) == last) {
  }
  return {now, clock64()};
}

struct Common {
  long long clock;
  double clocks_per_ns;
};

// The clock of this SM at a time that all SMs know: the earliest by many ticks of the global timer,
// each of which is seen a little late. It polls by atomics only, so that no read is counted.
__device__ Common common_clock(Meeting* meeting, unsigned readers) {
  Tick before = next_tick();
  if (atomicAdd(&meeting->arrived, 1u) + 1 == readers)
    atomicExch(&meeting->start_ns, nanoseconds() + LEAD_NS);
  unsigned long long start;
  while ((start = atomicAdd(&meeting->start_ns, 0ull)) == 0) {
  }
  while (nanoseconds() < start) {
  }
  Tick after = next_tick();
  double rate = double(after.clock - before.clock) / double(after.ns - before.ns);
  long long earliest = 1ll << 62;
  for (int i = 0; i < TICKS; ++i) {
    Tick tick = next_tick();
    earliest = min(earliest, tick.clock - (long long)(double(tick.ns - start) * rate));
  }
  return {earliest, rate};
}
