"""Python values as arguments: their texts, and messages for unsupported values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memlab
from memlab.errors import UsageError
from memlab.kernels.launch import Buffer, InMemoryArray, NullPointer, Scalar, Structure
from memlab.kernels.signature import KernelParameter, StructureMember
from memlab.kernels.user.arguments import python_values
from memlab.kernels.user.arguments.binding import bind_arguments
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import ArraySpecification
from memlab.kernels.user.kernel import UserKernel, apply_launch_options, parse_defines

PARAMETERS = {
    "f32": KernelParameter("p", "scalar", "f32", "float", 4),
    "u8": KernelParameter("p", "scalar", "u8", "unsigned char", 1),
    "bool": KernelParameter("p", "scalar", "bool", "bool", 1),
    "pointer": KernelParameter("p", "pointer", "f32", "float *", 8, 4),
    "struct": KernelParameter(
        "p",
        "structure",
        "",
        "Pair",
        8,
        parts=(StructureMember("x", "f32", 0, "float"), StructureMember("n", "i32", 4, "int")),
        alignment_bytes=4,
    ),
}


def bound(value: Any, kind: str) -> Any:
    return bind_arguments([python_values.convert_argument(value)], [PARAMETERS[kind]])[0]


@pytest.mark.parametrize(
    ("value", "kind", "passed"),
    [
        (2.5, "f32", 2.5),
        (3, "f32", 3.0),
        (np.float64(2.5), "f32", 2.5),
        (np.array(7, np.int64), "u8", 7),
        (ml_dtypes.bfloat16(1.5), "f32", 1.5),
        (True, "bool", 1),
        (np.True_, "bool", 1),
        (float("inf"), "f32", float("inf")),
    ],
)
def test_a_number_takes_the_type_of_its_parameter(value: Any, kind: str, passed: Any) -> None:
    found = bound(value, kind)

    assert isinstance(found, Scalar)
    assert found.value == passed
    assert type(found.value) is type(passed)


@pytest.mark.parametrize("value", [(0.5, 3), ((np.float32(0.5),), (3,)), "struct=0.5,3"])
def test_a_tuple_is_a_structure(value: Any) -> None:
    numbers = ((0, Scalar("x", "float32", 0.5)), (4, Scalar("n", "int32", 3)))

    assert bound(value, "struct") == Structure("p", 8, 4, numbers)


def test_none_is_a_null_pointer() -> None:
    assert bound(None, "pointer") == NullPointer("p")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::2],
        np.arange(6, dtype=">f4").reshape(3, 2).T,
    ],
)
def test_an_array_is_what_it_holds(array: Any) -> None:
    for value, role in ((array, "in"), (memlab.inout(array), "inout")):
        found = bound(value, "pointer")
        assert (found.shape, found.dtype, found.role) == ((2, 3), "float32", role)
        assert isinstance(found.fill, InMemoryArray)
        assert found.fill.array.dtype == np.float32
        assert found.fill.array.flags.c_contiguous
        assert np.array_equal(found.fill.array, array)


@pytest.mark.parametrize("dtype", ["f32", "float32", np.float32, np.dtype("f4")])
def test_an_output_is_as_its_text(dtype: Any) -> None:
    assert memlab.out((2, 3), dtype) == parse_specification("out:f32[2,3]")
    assert bound(memlab.out(np.int64(8), dtype), "pointer") == Buffer("p", (8,), "float32", "out")


def test_what_a_run_keeps_tells_arrays_apart() -> None:
    texts = {memlab.inout(np.array(values, np.int8)).text for values in ([1, 2], [2, 1], [1, 2])}

    assert len(texts) == 2
    assert all(text.startswith("inout:i8[2]=array-") for text in texts)


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (2.5, "u8", "argument 0 (p, unsigned char): '2.5' is not of type u8: write a whole number"),
        (256, "u8", "'256' is not of type u8"),
        (2.5, "pointer", "takes an array, got '2.5': write inout:f32[N], or null"),
        ((1, 2, 3), "struct", "is a structure of 2 numbers, got 'struct=1,2,3'"),
        ((1, [2]), "struct", "a list holds arrays, for a pointer to pointers, tuples"),
        ((1, None), "struct", "(p, Pair).n is a number, i32, got 'null': give a number"),
        ((), "f32", "takes a scalar, got 'struct'"),
        (np.zeros(4), "pointer", "convert it, array.astype('float32')"),
        (np.zeros(4, complex), "pointer", "arrays of complex128 cannot be passed: use one of"),
        (np.zeros(4, "M8[s]"), "pointer", "arrays of datetime64[s] cannot be passed"),
        (np.zeros((4, 0), np.float32), "pointer", "cannot have the shape (4, 0)"),
        ([1.0, 2.0], "pointer", "got one of float: give numbers as numpy.array(list)"),
        ({}, "pointer", "cannot be an object of type dict"),
        (1j, "f32", "cannot be an object of type complex"),
    ],
)
def test_what_cannot_be_passed_is_one_line(value: Any, kind: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        bound(value, kind)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(UsageError, match="thousands of digits"):
        python_values.convert_argument(10**5000)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(0, "f32"), ((2, -1), "f32"), (1.5, "f32"), ((), "f32"), (4, "f33"), ((2**32, 2**31), "u8")],
)
def test_no_output_is_without_elements_or_a_type(shape: Any, dtype: str) -> None:
    with pytest.raises(UsageError):
        memlab.out(shape, dtype)
    assert memlab.out((2**32, 2**31 - 1), "u8").shape == (2**32, 2**31 - 1)


def test_definitions_may_be_a_mapping() -> None:
    kernel = apply_launch_options(
        UserKernel("k.cu"), {"defines": {"A": 1, "B": "x+1", "C": None, "D": True, "E": 0.5}}
    )

    assert parse_defines(kernel) == {"A": "1", "B": "x+1", "C": "1", "D": "1", "E": "0.5"}
    with pytest.raises(UsageError, match=r"defines takes names with texts, numbers or None"):
        apply_launch_options(kernel, {"defines": {"A": [1]}})


def test_an_argument_that_is_none_of_these_is_numbered() -> None:
    with pytest.raises(UsageError, match=r"args\[1\]: an argument cannot be an object of type set"):
        apply_launch_options(UserKernel("k.cu"), {"args": [1, {2}]})
    (kept,) = apply_launch_options(UserKernel("k.cu"), {"args": np.ones(3, np.float32)}).args
    assert isinstance(kept, ArraySpecification)
