"""References of user kernels: which outputs they verify, and what they must return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from memlab.device.references import output_references
from memlab.errors import UsageError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Buffer, Launch
from memlab.kernels.user.arguments.specifications import ExpectedOutput
from memlab.kernels.user.kernel import UserKernel

LAUNCH: Launch = replace(
    find_kernel("naive").prepare({"width": 1}, Limits("any")),
    arguments=(
        Buffer("x", (2,), "float32", "in"),
        Buffer("y", (2,), "float32", "out"),
        Buffer("z", (2,), "float32", "inout"),
    ),
)
INPUTS = {"x": np.array([1, 2], np.float32), "z": np.array([3, 4], np.float32)}


def computed(function: Callable[..., Any] | str, *expect: ExpectedOutput) -> dict[str, Any]:
    """The values of the outputs, as lists; None for one that is not verified."""
    kernel = UserKernel("k.cu", reference=function, expect=expect)
    found = {}
    for name, reference in output_references(kernel, LAUNCH).items():
        values = reference(INPUTS, np.arange(2))
        found[name] = values if values is None else values.tolist()
    return found


def fill_y(x: Any, y: Any, z: Any) -> None:
    y[:] = x + z


def add_to_z(x: Any, y: Any, z: Any) -> None:
    z += x


def test_a_function_may_leave_what_it_could_overwrite() -> None:
    assert computed(fill_y) == {"y": [4.0, 6.0], "z": [3.0, 4.0]}
    with pytest.raises(UsageError, match="left y as it was: return it or fill it"):
        computed(add_to_z)
    with pytest.raises(UsageError, match="left y, z as they were"):
        computed(lambda x, y, z: None)


def test_a_function_verifies_an_output_unless_its_array_is_known() -> None:
    expected = ExpectedOutput("1", np.array([7, 8]))
    assert computed(lambda x, y, z: {}, expected) == {"y": [7, 8], "z": None}
    assert computed(add_to_z, expected) == {"y": [7, 8], "z": [4.0, 6.0]}
    with pytest.raises(UsageError, match="returned nothing for any output"):
        computed(lambda x, y, z: {})


@pytest.mark.parametrize("which", ["0", "3", "x", "w"])
def test_an_output_is_one_of_the_arguments_that_the_kernel_writes(which: str) -> None:
    with pytest.raises(UsageError, match=r"names no output of the kernel: .* 1 \(y\), 2 \(z\)"):
        computed(fill_y, ExpectedOutput(which, np.zeros(2)))


@pytest.mark.parametrize(
    "value",
    [np.float64(5), 5, 5.0, np.array(5), [5], np.array([5], np.float16), np.array([[5]])[0], (5,)],
)
def test_an_output_of_one_element_is_a_number_or_an_array(value: Any) -> None:
    launch = replace(LAUNCH, arguments=(Buffer("n", (1,), "int32", "out"),))
    kernel = UserKernel("k.cu", reference=lambda n: {"n": value})

    assert output_references(kernel, launch)["n"]({}, np.arange(1)).tolist() == [5]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.ones(2, complex), "for y: it is complex128; give its real part, or the view"),
        (np.zeros(2, "M8[s]"), "no real numbers for y: give an array of them"),
        (["1", "2"], "no real numbers for y: give an array of them"),
        (1.0, "an array of shape [] for y, which has [2]"),
    ],
)
def test_a_reference_returns_real_numbers(value: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        computed(lambda x, y, z: {"y": value})

    assert said in str(error.value)


def test_a_private_function_is_not_proposed(tmp_path: Path) -> None:
    file = tmp_path / "references.py"
    file.write_text("def _fill(x, y, z): pass\n")
    with pytest.raises(UsageError, match=r"no function 'fill': define it: def fill\(\.\.\.\)"):
        computed(f"{file}:fill")


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u1", "?", ">f8"])
def test_a_file_may_hold_numbers_of_any_type(dtype: str, tmp_path: Path) -> None:
    values = np.array([1, 0]).astype(dtype)
    np.save(tmp_path / "y.npy", values.reshape(1, 2))
    expect = f"y=@{tmp_path / 'y.npy'}"

    (reference,) = output_references(UserKernel("k.cu", expect=(expect,)), LAUNCH).values()
    expected = reference(INPUTS, np.array([1, 0]))

    assert expected is not None
    assert expected.tolist() == [0, 1]


def test_a_file_of_bfloat16_is_read_as_numpy_writes_it(tmp_path: Path) -> None:
    values = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.save(tmp_path / "y.npy", values)
    output = Buffer("y", (2,), "bfloat16", "out")
    kernel = UserKernel("k.cu", expect=(f"y=@{tmp_path / 'y.npy'}",))

    (reference,) = output_references(kernel, replace(LAUNCH, arguments=(output,))).values()
    found = reference({}, np.arange(2))

    assert found is not None
    assert found.astype(float).tolist() == [1.5, -2]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros(3), r"holds float64\[3\], and y has \[2\]: give as many elements"),
        (np.zeros(2, complex), "holds complex128, and the expected y must be real numbers"),
    ],
)
def test_a_file_must_fit_its_output(values: Any, said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", values)
    with pytest.raises(UsageError, match=said):
        output_references(UserKernel("k.cu", expect=(f"y=@{tmp_path / 'y.npy'}",)), LAUNCH)
