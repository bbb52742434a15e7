"""Functions that call themselves: how warps diverge in them, and where the stack ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from launches import launch_of
from paths import DATA
from ptx import kernel, run

from memlab.device.budget import Budget
from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import compile_launch, compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.emulation import counting, representative_block
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.sampling.block_sample import WholeGrid
from memlab.device.measurement import DeviceSummary
from memlab.kernels.launch import Buffer, Launch, Scalar

# Calls itself twice where n > 1, and once where n is odd besides.
RECURSION = """
.func (.param .b32 result) f(.param .b32 n)
{ .reg .b32 %r<6>; .reg .pred %p<3>; ld.param.u32 %r1, [n]; mov.u32 %r2, 1;
  setp.lt.s32 %p1, %r1, 2; @%p1 bra end;
  { .param .b32 a; .param .b32 b; add.s32 %r3, %r1, -1; st.param.b32 [a], %r3;
    call (b), f, (a); ld.param.b32 %r2, [b]; }
  and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0;
  { .param .b32 a; .param .b32 b; add.s32 %r3, %r1, -2; st.param.b32 [a], %r3;
    @%p2 call (b), f, (a); @%p2 ld.param.b32 %r4, [b]; @%p2 add.u32 %r2, %r2, %r4; }
  add.u32 %r2, %r2, %r1;
end: st.param.b32 [result], %r2; ret; }
"""
BODY = """
.reg .b32 %r<4>; .reg .b64 %a<4>; mov.u32 %r1, %tid.x; mul.wide.u32 %a1, %r1, 4;
ld.param.u64 %a2, [n]; add.u64 %a2, %a2, %a1; ld.global.u32 %r2, [%a2];
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), f, (a); ld.param.b32 %r3, [b]; }
ld.param.u64 %a3, [out]; add.u64 %a3, %a3, %a1; st.global.u32 [%a3], %r3; ret;
"""


def result(n: int) -> int:
    """What `f` of `RECURSION` returns."""
    if n < 2:
        return 1
    return result(n - 1) + (result(n - 2) if n % 2 == 0 else 0) + n


def executions(lanes: Sequence[int]) -> tuple[int, int]:
    """How often a warp begins `f`, and calls it again, if it reconverges behind each call."""
    begun, calls = 1, 0
    deeper = [n for n in lanes if n >= 2]
    even = [n for n in deeper if n % 2 == 0]
    for group in ([n - 1 for n in deeper], [n - 2 for n in even]):
        if group:
            more, nested = executions(group)
            begun, calls = begun + more, calls + nested + 1
    return begun, calls


@pytest.mark.parametrize("seed", range(3))
def test_warps_reconverge_behind_each_call(seed: int) -> None:
    lanes = np.random.default_rng(seed).integers(0, 9, 96).astype("i4")
    text = kernel(BODY, ".u64 n, .u64 out", functions=RECURSION)

    done = run(text, {"n": lanes, "out": np.zeros(96, "i4")}, block=(96, 1, 1))

    assert done["out"].tolist() == [result(n) for n in lanes]
    expected = np.sum([executions(warp.tolist()) for warp in lanes.reshape(3, 32)], axis=0)
    steps = [step.row.opcode for step in done.program.steps]
    begun = done.tally.warps[steps.index("setp.lt.s32")]
    calls = sum(done.tally.warps[i] for i, opcode in enumerate(steps) if opcode == "bra.call")
    assert (begun, calls - 3) == tuple(expected)


DEPTH = """__device__ __noinline__ int f(int n) { return n > 0 ? f(n - 1) * 3 + n : 1; }
extern "C" __global__ void k(int *o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i] = f(n + threadIdx.x % 3);
}"""
BLOCKS = 4096


def launch_to(depth: int) -> Launch:
    out = Buffer("o", (BLOCKS * 64,), "int32", "out")
    return launch_of(DEPTH, out, Scalar("n", "int32", depth), blocks=BLOCKS)


def test_blocks_that_nest_calls_alike_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of the blocks gives the counts of all."""
    launch = launch_to(5)
    compiled = compile_launch(launch, (9, 0))
    whole = Execution.of(launch, compiled, 0).record(WholeGrid(launch.grid))
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    monkeypatch.setattr(counting, "MAX_EXACT_LANE_INSTRUCTIONS", 0)
    execution = Execution.of(launch, compiled, 0)
    cost = representative_block.record_block(execution).lane_instructions_per_block

    sampled = counting.count_grid(execution, cost, lambda what, fraction: None)

    assert not sampled.coverage.estimated
    assert sampled.coverage.blocks_emulated < BLOCKS
    assert (sampled.tally.warps, sampled.tally.lanes) == (whole.warps, whole.lanes)


@pytest.mark.parametrize(("name", "deepest"), [("depth", 63), ("arrays", 8)])
def test_the_stack_holds_what_that_of_a_gpu_holds(name: str, deepest: int) -> None:
    """The greatest argument with which an H200 does not fail; its frames of `g` are larger here."""
    ptx = compile_unit(TranslationUnit(FRAMES, "k.cu", (9, 0))).ptx

    def runs(number: int) -> bool:
        arrays = {"n": np.full(32, number, "i4"), "o": np.zeros(32, "i4")}
        try:
            run(ptx, arrays, entry=name)
        except KernelFault:
            return False
        return True

    assert runs(deepest)
    assert not runs(deepest + (1 if name == "depth" else 3))


FRAMES = """__device__ __noinline__ int f(int n) { return n > 0 ? f(n - 1) * 3 + n : 1; }
__device__ __noinline__ int g(int n) {
  volatile int own[16];
  for (int k = 0; k < 16; k++) own[k] = n * (k + 1);
  return n > 0 ? g(n - 1) * 3 + own[n & 15] : 1;
}
extern "C" __global__ void depth(const int* n, int* o) { o[threadIdx.x] = f(n[threadIdx.x]); }
extern "C" __global__ void arrays(const int* n, int* o) { o[threadIdx.x] = g(n[threadIdx.x]); }
"""


def test_a_stack_overflow_is_a_fault_and_a_finding() -> None:
    launch = launch_to(1000)
    compiled = compile_launch(launch, (9, 0))
    message = "stack overflow: calls are nested so deep"
    with pytest.raises(KernelFault, match=rf"{message}.* 1024 bytes.*line 1: __device__"):
        Execution.of(launch, compiled, 0).record(WholeGrid(launch.grid))
    device = DeviceSummary("NVIDIA H200", "emulated", (9, 0), "h200")
    (finding,) = check_launch(launch, compiled, device, budget=Budget()).findings
    assert finding.message.startswith(message)


def test_a_call_through_a_pointer_to_no_function_is_a_fault() -> None:
    body = """.reg .b64 %a<3>; .reg .b32 %r<2>; ld.param.u64 %a1, [n]; ld.global.u64 %a2, [%a1];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], 1; call (b), %a2, (a), of;
      of: .callprototype (.param .b32 _) _ (.param .b32 _); ld.param.b32 %r1, [b]; }
    mov.u64 %a2, f; st.global.u32 [%a1], %r1; ret;"""
    text = kernel(body, ".u64 n", functions=RECURSION)
    with pytest.raises(KernelFault, match=r"illegal call: .* no function .*thread \(0, 0, 0\)"):
        run(text, {"n": np.full(2, 17, "u4")}, block=(1, 1, 1))


CALLS = (DATA / "third_party" / "calls.cu").read_text()
H200_STORES = {
    "fib": (12, {"fibonacci": 5}, 22_010),
    "parity": (15, {"odd": 4, "even": 3}, 1887),
    "frames": (999, {"digits": 7}, 1232),
    "table": (999, {"halve": 3}, 240),
}
"""The upper end of the numbers that a kernel gets; how many registers and elements of arrays a call
of a function stores in local memory, in the machine code for sm_90; and how many such stores warps
of an H200 executed: docs/results/README.md, "Recursion"."""


@pytest.mark.parametrize("name", H200_STORES)
def test_warps_diverge_as_on_a_gpu(name: str) -> None:
    most, stores, measured = H200_STORES[name]
    numbers = np.random.default_rng(1).integers(0, most, 512).astype("i4")
    ptx = compile_unit(TranslationUnit(CALLS, "calls.cu", (9, 0))).ptx
    arrays = {"n": numbers, "out": np.zeros(512, "i4")}

    done = run(ptx, arrays, entry=name, grid=(8, 1, 1), block=(64, 1, 1))

    found = 0
    for warps, step in zip(done.tally.warps, done.program.steps, strict=True):
        if step.row.opcode == "bra.call":
            called = str(step.instruction.operands[0])
            found += warps * next(n for function, n in stores.items() if function in called)
    assert found == pytest.approx(measured, rel=0.01)  # a GPU parts some warps more
