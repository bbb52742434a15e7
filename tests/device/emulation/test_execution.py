"""The memory of a launch, before it runs and after it was reset."""

import numpy as np

from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.sampling.block_sample import WholeGrid
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
