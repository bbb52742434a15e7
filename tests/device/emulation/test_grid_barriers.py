"""Kernels whose blocks wait for the whole grid: cooperative launches."""

import numpy as np
import pytest

import memlab
from memlab.device.compiler import ptx_text
from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.tracing.records import ElementAccess

HEADER = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"

RELAXATION = (
    HEADER
    + """
__global__ void relax(float *x, float *y, int n, int steps)
{
  cg::grid_group grid = cg::this_grid();
  for (int step = 0; step < steps; ++step) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
      float left = i > 0 ? x[i - 1] : 0, right = i < n - 1 ? x[i + 1] : 0;
      y[i] = 0.25f * left + 0.5f * x[i] + 0.25f * right;
    }
    grid.sync();
    float *old = x; x = y; y = old;
  }
}
"""
)

COMPACTION = (
    HEADER
    + """
__global__ void compact(const int *x, int *counts, int *out, int n)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool kept = i < n && x[i] % 3 == 0;
  int before = __syncthreads_count(kept);
  __shared__ int rank;
  if (threadIdx.x == 0) { counts[blockIdx.x] = before; rank = 0; }
  cg::this_grid().sync();
  if (threadIdx.x == 0)
    for (int b = 0; b < blockIdx.x; ++b) rank += counts[b];
  __syncthreads();
  if (kept) out[atomicAdd(&rank, 1)] = x[i];
}
"""
)


@pytest.mark.parametrize("steps", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
def test_steps_between_barriers_see_the_step_before_of_all_blocks(steps: int) -> None:
    x = np.random.default_rng(1).random(3000, np.float32)
    arguments = [memlab.inout(x), memlab.inout(np.zeros_like(x)), 3000, steps]
    run = memlab.run(memlab.source(RELAXATION), grid=(5, 2), block=96, args=arguments)
    expected = x.astype(np.float64)
    for _ in range(steps):
        padded = np.pad(expected, 1)
        expected = 0.25 * padded[:-2] + 0.5 * expected + 0.25 * padded[2:]
    name = "x" if steps % 2 == 0 else "y"
    np.testing.assert_allclose(run.outputs[name], expected, rtol=1e-5)
    counters = run.measurement.counters
    assert counters.global_atomic_requests == 10 * steps  # one thread of each block arrives
    assert run.measurement.coverage.blocks_emulated == 10


@pytest.mark.parametrize("grid", [1, 50, pytest.param(200, marks=pytest.mark.slow)])
def test_what_blocks_read_behind_a_barrier_decides_where_they_write(grid: int) -> None:
    n = 64 * grid - 5
    x = np.random.default_rng(2).integers(0, 1000, n).astype(np.int32)
    counts, out = memlab.inout(np.zeros(grid, np.int32)), memlab.inout(np.zeros(n, np.int32))
    kernel, arguments = memlab.source(COMPACTION), [x, counts, out, n]
    run = memlab.run(kernel, grid=grid, block=64, args=arguments)
    kept, found = x[x % 3 == 0], run.outputs["out"]
    for block, part in enumerate(np.array_split(x, range(64, n, 64))):
        end = np.count_nonzero(x[: 64 * block + 64] % 3 == 0)
        start = end - np.count_nonzero(part % 3 == 0)
        assert sorted(found[start:end]) == sorted(part[part % 3 == 0])
    assert not found[len(kept) :].any()
    assert run.measurement.time.median_s < 1e-3
    assert not memlab.check(kernel, grid=grid, block=64, args=arguments).findings


def test_a_missing_barrier_is_a_race_and_a_present_one_is_none() -> None:
    x = memlab.inout(np.ones(3000, np.float32))
    arguments = [x, memlab.inout(np.zeros(3000, np.float32)), 3000, 3]
    launch = {"grid": 10, "block": 96, "args": arguments}
    assert not memlab.check(memlab.source(RELAXATION), **launch).findings
    without = memlab.source(RELAXATION.replace("grid.sync();", "__syncthreads();"))
    assert {finding.tool for finding in memlab.check(without, **launch).findings} == {"racecheck"}


@pytest.mark.parametrize(
    "place", ["", pytest.param("cg::this_grid().sync();", marks=pytest.mark.slow)]
)
def test_blocks_that_end_without_the_barrier_are_named(place: str) -> None:
    kernel = memlab.source(
        HEADER
        + f"""__global__ void k(float *x)
{{
  {place}
  if (blockIdx.x == 1) return;
  cg::this_grid().sync();
  x[blockIdx.x] = 1;
}}
"""
    )
    arguments = [memlab.out(4, "f32")]
    report = memlab.check(kernel, grid=4, block=64, args=arguments, timeout_s=4)
    (finding,) = [each for each in report.findings if each.tool == "synccheck"]
    assert (finding.kind, finding.count) == ("grid barrier not reached", 64)
    assert (finding.at.line, finding.other.line) == (7, 6)
    assert (finding.at.block, finding.other.block) == ((0, 0, 0), (1, 0, 0))


def test_one_block_is_followed_past_the_barrier() -> None:
    n = 640
    x = np.arange(n, dtype=np.int32)
    arrays = memlab.inout(np.zeros(10, np.int32)), memlab.inout(np.zeros(n, np.int32))
    trace = memlab.trace(
        memlab.source(COMPACTION), grid=10, block=64, args=[x, *arrays, n], block_index=9
    )
    steps = [step for step in trace.followed.steps if isinstance(step, ElementAccess)]
    read = [step.element.index for step in steps if step.element.array == "counts"]
    assert read[1:] == list(range(9))  # behind what it wrote itself


def test_a_grid_that_is_not_all_resident_is_refused() -> None:
    x = memlab.inout(np.ones(64, np.float32))
    launch = {"block": 1024, "args": [x, memlab.inout(np.ones(64, np.float32)), 64, 1]}
    most = 132 * 2  # blocks of 1,024 threads on the SMs of an H200
    kernel = memlab.source(RELAXATION)
    assert memlab.run(kernel, grid=most, **launch).measurement.coverage.blocks_emulated == most
    for command in (memlab.run, memlab.check, memlab.trace):
        with pytest.raises(memlab.UsageError, match=rf"holds at most {most} of them, got 265"):
            command(kernel, grid=most + 1, **launch)


def test_only_kernels_that_wait_need_a_cooperative_launch() -> None:
    source = (
        RELAXATION + "__global__ void plain(float *x) { x[cg::this_grid().thread_rank()] = 1; }"
    )
    ptx = compile_unit(TranslationUnit(source, "k.cu", (9, 0))).ptx
    waiting = {name: ptx_text.waits_for_grid(ptx, name) for name in ptx_text.kernels(ptx)}
    assert waiting == {"_Z5relaxPfS_ii": True, "_Z5plainPf": False}
    blocks = 132 * 2 + 1  # not all resident
    out = memlab.out(1024 * blocks, "f32")
    run = memlab.run(memlab.source(source, "plain"), grid=blocks, block=1024, args=[out])
    assert (run.outputs["x"] == 1).all()
