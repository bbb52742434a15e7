"""Kernels of the catalog and user kernels through `import memlab`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
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


def test_a_user_kernel_is_analyzed_checked_and_traced() -> None:
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


X = np.arange(129, dtype=np.float32)
SHIFTED: dict[str, Any] = {"args": [X, memlab.out(128, "f32"), 128]}
EXPECTED = X[:-1] + X[1:].astype(float)


def filled(x: Any, y: Any, n: int) -> None:
    assert (type(n), np.isnan(y).all()) == (int, True)
    y[:] = x[:-1] + x[1:]


def forgotten(x: Any, y: Any, n: int) -> None:
    x[:-1] + x[1:]


def failing(x: Any, y: Any, n: int) -> Any:
    return x[n + 1 :][n]


def convolved(ones: Any, x: Any, y: Any, n: int) -> Any:
    return np.convolve(x, ones, "valid")


@pytest.mark.parametrize(
    "choice",
    [
        {"expect": {"y": EXPECTED}},
        {"expect": {"y": EXPECTED.astype(">f4")}},
        {"expect": {1: EXPECTED.tolist()}},
        {"expect": {"y": "@y.npy"}},
        {"reference": lambda x, y, n: x[:n] + x[1:]},
        {"reference": lambda x, y, n: {"y": x[:n] + x[1:]}},
        {"reference": filled},
        {"reference": partial(convolved, [1, 1])},
        {"reference": forgotten, "expect": {"y": EXPECTED}},
    ],
)
def test_results_are_compared_with_arrays_and_functions(choice: dict[str, Any]) -> None:
    np.save("y.npy", EXPECTED.astype(np.float32))

    for job in (memlab.run, memlab.analyze, memlab.check):
        found = job("shift", **SHIFTED, **choice)
        verification = getattr(found, "measurement", found).verification
        assert (verification.status, verification.checked) == ("passed", 128)


@pytest.mark.parametrize("option", ["expect", "reference"])
def test_a_wrong_element_is_named(option: str) -> None:
    wrong = EXPECTED + (np.arange(128) == 7)
    choice = {"expect": {"y": wrong}} if option == "expect" else {"reference": lambda *_: wrong}

    verification = memlab.run("shift", **SHIFTED, **choice).measurement.verification
    assert (verification.status, verification.wrong) == ("failed", 1)
    assert verification.worst == "y[7] is 15, must be 16"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"expect": {"x": EXPECTED}}, "expect['x'] names no output of the kernel: outputs are 1"),
        ({"expect": {"y": EXPECTED[:3]}}, "expect holds an array of shape [3] for y, which has"),
        ({"expect": {"y": EXPECTED * 1j}}, "expect holds no real numbers for y"),
        ({"expect": {None: EXPECTED}}, "expect names outputs, got an object of type NoneType"),
        ({"expect": EXPECTED}, "got an object of type ndarray: write {'y': array}"),
        ({"include": [EXPECTED]}, "include takes texts, got an object of type ndarray"),
        ({"grid": np.ones((9, 9))}, "numbers from 1 to 2147483647, got an object of type ndarray"),
        ({"reference": 3}, "reference names a function in a Python file, got 3"),
        ({"reference": forgotten}, "forgotten returned nothing and left y as it was: return it or"),
        ({"reference": failing}, "the reference failing failed in line "),
        ({"reference": lambda x: x}, "takes 1 positional argument but 3 were given"),
        ({"seed": 1.5}, "seed must be a whole number, 0 or more, got 1.5"),
        ({"timeout_s": "5"}, "timeout_s must be a number of seconds, got '5'"),
        ({"timeout_s": float("inf")}, "timeout must be more than 0 seconds and finite, got inf"),
        ({"memory_bytes": "4GiB"}, "memory_bytes must be a whole number, got '4GiB'"),
        ({"samples": 2.5}, "samples must be a whole number, got 2.5"),
    ],
)
def test_a_wrong_argument_is_one_line(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        memlab.run("shift", **{**SHIFTED, **choice})

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_path_names_a_kernel_as_its_text_does() -> None:
    Path("include").mkdir()
    Path("include/empty.h").write_text("")
    Path("shift.cu").write_text('#include "empty.h"\n' + SHIFT)
    launch = {"grid": 2, "block": 64, "include": Path("include"), **SHIFTED}
    assert memlab.run(Path("shift.cu"), **launch).measurement.kernel == "shift.cu:shift"
    for nothing in (None, 3, ["shift"]):
        with pytest.raises(UsageError, match="a kernel cannot be an object of type"):
            memlab.run(nothing)  # type: ignore[arg-type]


def test_an_index_is_read_as_a_grid_is() -> None:
    for index in (1, (1, 0), [1, 0, 0], "1,0", np.int64(1)):
        trace = memlab.trace("shift", block_index=index, thread_index=(3,))  # type: ignore[arg-type]
        assert (trace.block_index, trace.followed.thread) == ((1, 0, 0), (3, 0, 0))
    for wrong in ((), (1, 0, 0, 0), 1.5, None, "a"):
        with pytest.raises(UsageError, match="block_index takes one to three whole numbers, in x"):
            memlab.trace("shift", block_index=wrong)  # type: ignore[arg-type]


def test_a_frame_takes_runs_one_by_one_or_as_a_list() -> None:
    run, tiled = memlab.run("shift"), memlab.run("tiled", width=32, tile=8)
    assert list(memlab.frame(run, run)["kernel"]) == ["shift", "shift"]
    assert list(memlab.frame([run, tiled])["width"].dropna()) == [32]
    with pytest.raises(UsageError, match="frame takes runs, got an object of type str"):
        memlab.frame([run, "shift"])  # type: ignore[list-item]


@pytest.mark.parametrize("job", [memlab.analyze, memlab.check, memlab.trace, memlab.occupancy])
def test_a_wrong_name_has_the_message_of_the_command_line(job: object) -> None:
    assert callable(job)
    with pytest.raises(UsageError, match=r"unknown|did you mean"):
        job("shiftt")
    with pytest.raises(UsageError, match="has no launch option 'blok'"):
        job("shift", blok=1)
