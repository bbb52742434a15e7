"""Cooperative launches on a GPU: kernels whose blocks wait for the whole grid."""

import numpy as np
import pytest

import memlab

pytestmark = pytest.mark.gpu

SOURCE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__constant__ float weight;

__global__ void relax(float *x, float *y, int n, int steps, char last)
{
  extern __shared__ float staged[];
  cg::grid_group grid = cg::this_grid();
  for (int step = 0; step < steps; ++step) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
      float left = i > 0 ? x[i - 1] : 0, right = i < n - 1 ? x[i + 1] : 0;
      staged[threadIdx.x] = left + right;
      y[i] = 0.25f * staged[threadIdx.x] + weight * x[i] + (last - 7);
    }
    grid.sync();
    float *old = x; x = y; y = old;
  }
}
"""


@pytest.mark.parametrize(("grid", "shared"), [(10, 1024), (132, 100 * 1024)])
def test_steps_between_barriers_see_the_step_before_of_all_blocks(grid: int, shared: int) -> None:
    x = np.random.default_rng(1).random(100_000, np.float32)
    steps = 5
    run = memlab.run(
        memlab.source(SOURCE),
        grid=grid,
        block=256,
        shared=shared,
        args=[memlab.inout(x), memlab.inout(np.zeros_like(x)), len(x), steps, 7],
        constants={"weight": 0.5},
        device=0,
    )
    expected = x.astype(np.float64)
    for _ in range(steps):
        padded = np.pad(expected, 1)
        expected = 0.25 * padded[:-2] + 0.5 * expected + 0.25 * padded[2:]
    np.testing.assert_allclose(run.outputs["y"], expected, rtol=1e-5)
    assert run.measurement.time.provenance == "measured"
    assert run.measurement.counters.global_atomic_requests == grid * steps


def test_a_grid_that_is_not_resident_is_one_line() -> None:
    x = memlab.inout(np.zeros(1000, np.float32))
    with pytest.raises(memlab.UsageError, match=r"wait for the whole grid.*resident") as error:
        memlab.run(
            memlab.source(SOURCE),
            grid=100_000,
            block=256,
            shared=1024,
            args=[x, memlab.inout(np.zeros(1000, np.float32)), 1000, 1, 7],
            device=0,
        )
    assert "\n" not in str(error.value)
