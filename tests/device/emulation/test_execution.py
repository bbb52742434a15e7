"""The memory of a launch, before it runs and after it was reset."""

import gc
import weakref

import numpy as np
import pytest
from launches import launch_of

from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import launch_limits, open_device
from memlab.device.emulation import execution as execution_module
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.program.program import runs_forward
from memlab.device.emulator.sampling.block_sample import WholeGrid
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Arange, Buffer, Launch, Scalar

SOURCE = """struct Three { int x, y, z; };
__device__ int launches = 3;
extern "C" __global__ void k(float* sum, float* held, Three* points, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i % 50000 == 7) sum[i] = held[i];
  if (i >= n - 5) held[i] += 2;
  if (i == 90000) points[i].z = atomicAdd(&launches, 1);
}"""
ELEMENTS = 100_000


def test_a_reset_restores_what_was_stored_and_forgets_where() -> None:
    sum_, held = (
        Buffer(name, (ELEMENTS,), "float32", role, fill)
        for name, role, fill in (("sum", "out", None), ("held", "inout", Arange()))
    )
    points = Buffer("points", (ELEMENTS * 3,), "int32", "out")
    launch = Launch(
        kernel="k",
        parameters={},
        source=SOURCE,
        source_name="k.cu",
        entry="k",
        defines={},
        grid=(ELEMENTS // 100, 1, 1),
        block=(100, 1, 1),
        dynamic_shared_bytes=0,
        arguments=(sum_, held, points, Scalar("n", "int32", ELEMENTS)),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
    )
    execution = Execution.of(launch, compile_launch(launch, (9, 0)), 0)
    before = execution.memory.data.copy()
    execution.record(WholeGrid(launch.grid))
    assert execution.elements_written(sum_).tolist() == [7, 50_007]
    assert execution.elements_written(held).tolist() == list(range(ELEMENTS - 5, ELEMENTS))
    assert execution.elements_written(points).tolist() == [90_000 * 3 + 2]
    assert np.count_nonzero(execution.memory.data != before) > 5
    execution.reset()
    assert (execution.memory.data == before).all()
    assert not any(execution.elements_written(each).size for each in launch.outputs)


LOOP = """extern "C" __global__ void k(float* out, const float* in, int turns) {
  float sum = 0;
  for (int i = 0; i < turns; i += 1 + threadIdx.x % 3) sum = sum * in[i] + in[threadIdx.x];
  out[threadIdx.x] = sum;
}"""
STRAIGHT = LOOP.replace("for (int i = 0; i < turns; i += 1 + threadIdx.x % 3)", "int i = turns;")
RECURSIVE = """__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + n * f(n - 2); }
extern "C" __global__ void k(float* out, const float* in, int turns) { out[0] = f(turns); }"""


def _execution(source: str) -> Execution:
    out, given = Buffer("out", (64,), "float32", "out"), Buffer("in", (64,), "float32", "in")
    launch = launch_of(source, out, given, Scalar("turns", "int32", 20), blocks=1)
    return Execution.of(launch, compile_launch(launch, (9, 0)), 0)


def test_cutting_the_code_changes_no_counts() -> None:
    execution, block = _execution(LOOP), np.zeros((1, 3), np.int64)
    whole = execution.run(block).tally()
    execution.reset()
    cut = execution.run(block, cuts=range(0, len(execution.program.steps), 3)).tally()
    assert cut.warps == whole.warps
    assert cut.lanes == whole.lanes


def test_programs_that_loop_or_recur_do_not_run_forward() -> None:
    assert runs_forward(_execution(STRAIGHT).program)
    assert not runs_forward(_execution(LOOP).program)
    assert not runs_forward(_execution(RECURSIVE).program)


@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [
        ("tiled", {"width": 64}),
        ("row-sum-block", {}),  # shuffles
        pytest.param(
            "wgmma-specialized", {"width": 256}, marks=pytest.mark.slow
        ),  # named barriers and mbarriers
    ],
)
def test_memory_is_freed_without_a_collection(
    kernel: str, parameters: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[GlobalMemory]] = []

    class Noted(GlobalMemory):
        def __init__(self, arrays: dict[str, tuple[int, int]]) -> None:
            super().__init__(arrays)
            made.append(weakref.ref(self))

    monkeypatch.setattr(execution_module, "GlobalMemory", Noted)
    device = open_device("h200")
    launch = CATALOG[kernel].prepare(parameters, launch_limits(device.properties))

    gc.disable()
    try:
        device.run(launch, 0)
        assert [memory() for memory in made] == [None] * len(made)
    finally:
        gc.enable()
    assert made
