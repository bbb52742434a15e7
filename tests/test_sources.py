"""`memlab.source`: kernels whose CUDA C++ is a text in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab

SCALE = """\
#include "factor.h"
template <class T> __global__ void scale(T *x) {
  x[threadIdx.x] *= FACTOR;
}
"""
X = np.arange(32, dtype="f4")
LAUNCH: dict[str, Any] = {"grid": 1, "block": 32, "args": [memlab.inout(X)], "device": "a100"}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "factor.h").write_text("#ifndef FACTOR\n#define FACTOR 3\n#endif\n")
    return memlab.source(SCALE, "scale<float>", name="scale.cu")


def test_a_text_is_compiled_and_run(kernel: Any) -> None:
    run = memlab.run(kernel, **LAUNCH)
    np.testing.assert_array_equal(run.outputs["x"], 3 * X)
    assert run.measurement.kernel == "scale.cu:scale<float>"
    assert "x[threadIdx.x] *= FACTOR;" in {line.text.strip() for line in run.measurement.lines}
    assert run.recipe is None  # no file says how to launch it again
    assert run.identity.git_commit is None


def test_the_other_functions_take_a_text(kernel: Any) -> None:
    assert memlab.check(kernel, **LAUNCH).findings == ()
    assert memlab.occupancy(kernel, block=32, device="a100").blocks_per_sm == 32
    swept = memlab.sweep(kernel, **LAUNCH, defines={"FACTOR": [2, 4]}, expect={"x": 4 * X})
    assert {row.status for row in swept.rows} == {"done", "wrong"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no code"), (b"__global__", "RawModule of CuPy, got an object of type bytes")],
)
def test_what_is_no_text_is_refused(text: Any, message: str) -> None:
    with pytest.raises(memlab.UsageError, match=message):
        memlab.source(text)


def test_a_mistake_names_the_line_of_the_text() -> None:
    broken = memlab.source("__global__ void f(int *x) {\n  x = y;\n}", name="broken.cu")
    with pytest.raises(memlab.UsageError, match=r"broken\.cu"):
        memlab.run(broken, grid=1, block=1, args=["out:i32[1]"], device="a100")


def test_a_text_in_place_of_a_name_is_refused() -> None:
    with pytest.raises(memlab.UsageError, match=r"got CUDA C\+\+: give memlab.source\(text\)"):
        memlab.run(SCALE, grid=1, block=1, device="a100")
