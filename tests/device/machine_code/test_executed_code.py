"""The instruction counters of a launch, by hand for small kernels."""

from __future__ import annotations

import pytest
from launches import launch_of

from memlab.device.datasheets import loader
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.machine_code import executed_code
from memlab.device.machine_code.disassembly import DisassemblyError
from memlab.kernels.launch import Buffer, Scalar

LOOP = """extern "C" __global__ void k(const float* a, float* out, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i * 64 + threadIdx.x];
  out[blockIdx.x * 64 + threadIdx.x] = sum;
}
"""
SPILL = """extern "C" __global__ void k(const float* a, float* out, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = a[i * 64 + threadIdx.x];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 96; ++i) sum = sum * v[95 - i] + v[i] * v[(i * 7) % 96];
  out[blockIdx.x * 64 + threadIdx.x] = sum;
}
"""


def run(source, n, **more):
    launch = launch_of(
        source,
        Buffer("a", (n * 64,), "float32", "in"),
        Buffer("out", (128,), "float32", "out"),
        Scalar("n", "int32", n),
        **more,
    )
    return EmulatedDevice("h200", loader.load_datasheet("h200")).run(launch, seed=0)


def test_an_unrolled_loop_takes_whole_rounds_and_then_the_rest():
    # ptxas unrolls the loop; whatever it does, it loads n times and adds n times per warp.
    for n in (1, 3, 7, 16, 61):
        counted = run(LOOP, n).instructions

        assert counted.counted == "machine code"
        assert counted.by_pipe["lsu"] >= 4 * (n + 1)
        assert counted.thread_instructions == 32 * counted.warp_instructions
    # 64 more iterations are whole rounds of any factor up to 64: the rest stays the same.
    first, second, third = (run(LOOP, n).instructions for n in (61, 61 + 64, 61 + 128))
    more = second.warp_instructions - first.warp_instructions
    assert third.warp_instructions - second.warp_instructions == more
    assert 2 * 64 * 4 < more < second.ptx_warp_instructions - first.ptx_warp_instructions


def test_spilled_registers_are_counted():
    plain, tight = (
        run(SPILL, 96, compile_options=options).instructions
        for options in ((), ("--maxrregcount=32",))
    )

    assert plain.spill_loads == plain.spill_stores == 0
    assert tight.spill_loads > 0
    assert tight.spill_stores > 0


def test_without_machine_code_the_ptx_is_counted_and_the_reason_given(monkeypatch):
    def missing(*_):
        raise DisassemblyError("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")

    monkeypatch.setattr(executed_code, "disassemble", missing)

    measured = run(LOOP, 5)

    assert measured.instructions.counted == "PTX"
    assert "not installed" in measured.instructions.reason
    assert measured.counters.warp_instructions == sum(
        line.warp_instructions for line in measured.lines
    )


CONTENDED = """extern "C" __global__ void k(const float* a, float* out, int n) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, a[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
"""


def test_a_shared_float_atomic_loads_and_swaps_until_all_lanes_have_added():
    # 2 blocks of 2 warps: an H200 took 0.955 rounds of a warp for each of the 64 lanes that add to
    # the word (docs/results/h200-shared-floats.csv). Both warps load the sum, too (predicated).
    counters = run(CONTENDED, 1).counters

    swaps = counters.shared_atomic_instructions
    assert swaps == pytest.approx(4 * 64 * 0.955, rel=0.05)
    assert counters.shared_load_instructions == swaps + 2
