"""`import memlab`: the functions of a notebook take the catalog's kernels and one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

import memlab
from memlab.errors import UsageError

SHIFT = """\
extern "C" __global__ void shift(const float* x, float* y, int n) {
  __shared__ float tile[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = x[i];
  y[i] = tile[threadIdx.x] + x[i + 1];
}
"""


@pytest.fixture(autouse=True)
def _kernel_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    Path("shift.cu").write_text(SHIFT)
    Path("memlab.toml").write_text(
        '[kernels.shift]\nsource = "shift.cu"\ngrid = 2\nblock = 64\n'
        'args = ["f32[129]", "out:f32[128]", "i32=128"]\n'
    )


def test_a_kernel_of_ones_own_is_analysed_checked_and_followed() -> None:
    # Four warps load four sectors at x[i] and five at x[i + 1].
    counters = memlab.analyze("shift").counters
    assert (counters.global_load_requests, counters.global_load_sectors) == (8, 36)

    assert not memlab.check("shift").findings
    small = ["f32[128]", "out:f32[128]", "i32=128"]
    (finding,) = memlab.check("shift", args=small).findings
    assert (finding.kind, finding.at.line, finding.count) == ("out of bounds", 5, 1)
    assert finding.element == "x[128] of 128 elements"

    followed = memlab.trace("shift", block_index=(1, 0, 0), thread_index=(2, 0, 0)).followed
    assert (followed.thread, len(followed.steps)) == ((2, 0, 0), 5)


def test_occupancy_is_that_of_the_compiled_kernel() -> None:
    # Without registers or shared memory to speak of, an SM of an H200 holds 32 blocks, of two
    # warps each; of 1024 threads it holds two.
    own = memlab.occupancy("shift")
    assert (own.blocks_per_sm, own.warps_per_sm, own.limiter) == (32, 64, "blocks and warps")
    assert memlab.occupancy("tiled", tile=32).blocks_per_sm == 2


@pytest.mark.parametrize("job", [memlab.analyze, memlab.check, memlab.trace, memlab.occupancy])
def test_a_wrong_name_is_told_as_on_the_command_line(job: object) -> None:
    assert callable(job)
    with pytest.raises(UsageError, match=r"unknown|did you mean"):
        job("shiftt")
    with pytest.raises(UsageError, match="has no choice 'blok'"):
        job("shift", blok=1)
