"""`__constant__` variables filled from Python, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import memlab
from memlab.errors import UsageError

SOURCE = """
struct Line { float slope; int offset; };
__constant__ float w[4];
__constant__ Line line;
__global__ void k(float* y) { y[threadIdx.x] = w[threadIdx.x] * line.slope + line.offset; }
"""
W = np.array([0.5, 1.0, 2.0, 4.0], np.float32)
LINE = np.array([(2.0, 3)], [("slope", "f4"), ("offset", "i4")])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("constants") / "c.cu"
    path.write_text(SOURCE)
    return f"{path}:k"


def run(file: str, constants: Any) -> Any:
    return memlab.run(file, grid=1, block=4, args=["out:f32[4]"], constants=constants)


@pytest.mark.parametrize("w", [W, W.astype(">f4"), W.reshape(2, 2), W.tolist()])
@pytest.mark.parametrize("line", [LINE, (2.0, 3), "2,3"])
def test_constants_are_arrays_lists_tuples_and_texts(file: str, w: Any, line: Any) -> None:
    made = run(file, {"w": w, "line": line})

    np.testing.assert_array_equal(made.outputs["y"], 2 * W + 3)


def test_a_number_fills_all_elements_and_runs_are_told_apart(file: str) -> None:
    assert run(file, {"w": 3, "line": (1, 0)}).outputs["y"].tolist() == [3, 3, 3, 3]
    texts = {run(file, {"w": w}).measurement.parameters["constants"] for w in (W, 2 * W)}
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("constants", "said"),
    [
        ({"w": W.astype(float)}, "w is float32, got an array of float64: convert it, array.astype"),
        ({"line": [1, 2]}, "line has 1 elements, got an array of 2"),
        ({"w": W[:3]}, "w has 4 elements, got an array of 3: give one of shape [4]"),
        ({"w": ["a"] * 4}, "w is float32, got an array of str32"),
        ({"v": W}, "has no __constant__ or __device__ variable 'v': known: line, w"),
        ({"w": None}, "constants['w'] is None: write 'zeros', or leave it out"),
        ({"w": {}}, "constants['w'] cannot be an object of type dict: give a text"),
        ({3: W}, "constants names variables, got an object of type int"),
        (3, "constants takes texts or a mapping of variables to values, got 3"),
        ({"line": (1, 2, 3)}, "line: '1,2,3' has 3 fills for 2 members (slope, offset)"),
    ],
)
def test_wrong_constants_are_one_line(file: str, constants: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        run(file, constants)

    assert said in str(error.value)
    assert "\n" not in str(error.value)
