"""Argument specifications: valid ones are bound, others are refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.inputs import argument_bytes
from memlab.errors import UsageError
from memlab.kernels.launch import (
    Arange,
    ArrayAlias,
    Buffer,
    NpyFile,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    Uniform,
)
from memlab.kernels.signature import KernelParameter, StructureMember
from memlab.kernels.user.arguments.binding import bind_arguments
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import MAX_FLOATS, NUMPY_DTYPES

SAXPY = (
    KernelParameter("a", "scalar", "f32", "float", 4),
    KernelParameter("x", "pointer", "f32", "const float *", 8, 4, readonly=True),
    KernelParameter("y", "pointer", "f32", "float *", 8, 4),
    KernelParameter("n", "scalar", "i32", "int", 4),
)
OTHERS = (
    KernelParameter("v", "pointer", "", "float4 *", 8, 16, member_dtype="f32"),
    KernelParameter("p", "pointer", "", "void *", 8),
    KernelParameter("h", "pointer", "bf16", "__nv_bfloat16 *", 8, 2),
    KernelParameter("flag", "scalar", "bool", "bool", 1),
    KernelParameter("argument 4", "scalar", "u64", "unsigned long long", 8),
)


def numpy_range(dtype: str) -> tuple[float, float]:
    """The smallest and largest finite value, from NumPy and ml_dtypes."""
    if dtype == "bf16":
        info: Any = ml_dtypes.finfo(ml_dtypes.bfloat16)
    elif dtype in MAX_FLOATS:
        info = np.finfo(NUMPY_DTYPES[dtype])
    else:
        info = np.iinfo(NUMPY_DTYPES[dtype])
    number = float if dtype in MAX_FLOATS else int
    return number(info.min), number(info.max)


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros((3, 5), np.float32), (3, 5)),
        (np.zeros((3, 5), np.float32, order="F"), (3, 5)),
        (np.float32(1), (1,)),
    ],
)
def test_an_array_may_take_the_shape_of_its_file(array: Any, shape: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "x.npy")
    np.save(path, array)

    for role in ("in", "inout"):
        (found,) = bind_arguments([f"{role}:f32[]=@{path}"], [SAXPY[2]])
        assert found == Buffer("y", shape, "float32", role, NpyFile(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f32[]=@{}/empty.npy", "has the shape [2, 0], no elements"),
        ("f32[]=@{}/none.npy", "argument 0 (y, float *): cannot read"),
        ("f32[]=@{}", "is not a file: name one that numpy.save wrote"),
        ("f32[]", "or f32[]=@FILE.npy for those of a file"),
        ("f32[]=ones", "'f32[]=ones' has invalid dimensions"),
        ("f32[,]=@{}/empty.npy", "has invalid dimensions"),
        ("out:f32[]=@{}/empty.npy", "has invalid dimensions"),
    ],
)
def test_a_shape_that_no_file_has_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.zeros((2, 0), np.float32))

    with pytest.raises(UsageError) as error:
        bind_arguments([text.format(tmp_path)], [SAXPY[2]])

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_launch_gets_what_was_written() -> None:
    texts = ("f32=2.5", "f32[64, 0x10]=@x.npy", "inout:f32[1_024]=ones", "i32=-7")

    assert bind_arguments(texts, SAXPY) == (
        Scalar("a", "float32", 2.5),
        Buffer("x", (64, 16), "float32", "in", NpyFile("x.npy")),
        Buffer("y", (1024,), "float32", "inout", SingleValue(1)),
        Scalar("n", "int32", -7),
    )


def test_structures_void_and_small_types_are_taken_too() -> None:
    texts = (
        "out:f32[6,4]",
        "in:u8[3]=arange",
        "out:bf16[5]",
        "bool=true",
        "u64=0xffffffffffffffff",
    )

    assert bind_arguments(texts, OTHERS) == (
        Buffer("v", (6, 4), "float32", "out"),
        Buffer("p", (3,), "uint8", "in", Arange()),
        Buffer("h", (5,), "bfloat16", "out"),
        Scalar("flag", "bool", 1),
        Scalar("argument 4", "uint64", 2**64 - 1),
    )


@pytest.mark.parametrize(
    ("text", "fill"),
    [
        ("f32[4]", None),
        ("f32[4]=random", None),
        ("f16[4]=zeros", SingleValue(0)),
        ("f32[4]=-2.5", SingleValue(-2.5)),
        ("f64[4]=nan", None),
        ("u8[4]=255", SingleValue(255)),
        ("i8[4]=randint:-128:128", Uniform(-128, 128)),
        ("f32[4]=uniform:-1:1", Uniform(-1.0, 1.0)),
        ("f16[4]=65504", SingleValue(65504.0)),
        ("f16[4]=uniform:-32752:32752", Uniform(-32752.0, 32752.0)),
    ],
)
def test_every_filling_is_understood(text: str, fill: Any) -> None:
    found: Any = parse_specification(text)

    assert found.role == "in"
    if text.endswith("nan"):
        assert np.isnan(found.fill.value)
    else:
        assert found.fill == fill


@pytest.mark.parametrize(
    ("number", "text", "said"),
    [
        (0, "f64=2", "argument 0 (a, float) is f32, got 'f64=2': write f32=2"),
        (0, "f32[4]", "argument 0 (a, float) takes a scalar, got 'f32[4]': write f32=2.0"),
        (0, "f32", "has no value and no dimensions: write f32=2.0 for a scalar, f32[N]"),
        (0, "f32=1e39", "'1e39' is too large for f32: use at most 3.40282347e+38"),
        (0, "f32=two", "'two' is not of type f32: write a number"),
        (0, "float=2", "unknown type 'float': write f32 for it"),
        (1, "in:float64[8]", "unknown type 'float64': write f64 for it"),
        (0, "in:f32=2", "has no dimensions: write in:f32[N]"),
        (0, "", "'' is not an argument: write f32=2.0"),
        (
            1,
            "out:f32[4]",
            "(x, const float *) is a pointer to const, through which no kernel writes",
        ),
        (2, "f32=2.0", "argument 2 (y, float *) takes an array, got 'f32=2.0': write inout:f32[N]"),
        (1, "struct=1", "takes an array, got 'struct=1': write in:f32[N], or null"),
        (3, "struct=1", "takes a scalar, got 'struct=1': write i32=1"),
        (2, "out:f32[4]=zeros", "leave out =zeros, or write inout:"),
        (0, "n=1024", "unknown type 'n': leave out n=, arguments are given without names"),
        (2, "io:f32[4]", "unknown prefix 'io': use in:, out: or inout:"),
        (
            0,
            "tex2d:f32[8,16]:point",
            "starts with 'tex2d:': write texture=f32[8,16]:point for a texture; the extents tell",
        ),
        (0, "surf2D=out:f32[8]", "starts with 'surf2D=': write surface=out:f32[8] for a surface"),
        (0, "cudaTextureObject_t=f32[8]", "write texture=f32[8] for a texture"),
        (0, "surface:", "write surface=out:f32[512,512] for a surface"),
        (0, "tma:f16[64]:box[8]", "write tensormap=f16[64]:box[8] for a tensor map"),
        (0, "texture=tex2d:f32[8]", "unknown prefix 'tex2d': leave it out; the extents of a text"),
        (0, "texture=f32[8,8]:nearest", "unknown option 'nearest': write point"),
        (2, "f64[4]", "points to f32, got 'f64[4]': write in:f32[4]"),
        (2, "f32[]", "has invalid dimensions: write whole numbers from 1 on"),
        (2, "f32[4,0]", "'f32[4,0]' has invalid dimensions"),
        (2, "f32[4]=arrange", "cannot be filled with 'arrange': did you mean 'arange'"),
        (2, "f32[4]=@", "@ names no file"),
        (2, "f32[4]=randint:0:4", "randint does not fill f32 elements: use uniform:LO:HI"),
        (2, "f32[4]=uniform:1:1", "'1:1' is not a range of f32"),
        (2, "f32[4]=uniform:-3e38:3e38", "is not a range of f32"),  # its width is infinite
        (
            3,
            "i32=3000000000",
            "is not of type i32: write a whole number from -2147483648 to 2147483647",
        ),
        (3, "i32=1.5", "'1.5' is not of type i32"),
        (3, "u32=5", "argument 3 (n, int) is i32, got 'u32=5': write i32=5"),
        (4, "out:f32[6]", "(v, float4 *) points to structures of 16 bytes, got 'out:f32[6]' of 24"),
        (5, "i16[4]=randint:0:40000", "'0:40000' is not a range of i16"),
        (8, "i64=5", "argument 8 (argument 4, unsigned long long) is u64"),
    ],
)
def test_what_is_wrong_is_said_of_the_parameter(number: int, text: str, said: str) -> None:
    parameters = (*SAXPY, *OTHERS)
    texts = ["f32=1", "f32[4]", "f32[4]", "i32=4", "f32[4]", "u8[4]", "bf16[4]", "bool=0", "u64=1"]
    texts[number] = text

    with pytest.raises(UsageError) as error:
        bind_arguments(texts, parameters)

    assert said in str(error.value)
    assert f"argument {number} (" in str(error.value)


def structure(*parts: tuple[str, str, int, str] | None) -> KernelParameter:
    """A parameter of 24 bytes with these parts; None for one that cannot be split up."""
    taken = None if None in parts else tuple(StructureMember(*part) for part in parts if part)
    return KernelParameter("p", "structure", "", "Params", 24, parts=taken, alignment_bytes=8)


PAIR = structure(("scale", "f64", 0, "double"), ("at[1]", "i16", 12, "short"))


@pytest.mark.parametrize(
    ("parameter", "text", "members", "path"),
    [
        (PAIR, "struct=0.5, -3", ((0, "scale", "float64", 0.5), (12, "at[1]", "int16", -3)), ""),
        (PAIR, "struct=@p.npy", (), "p.npy"),
        (structure(), "struct", (), ""),
        (structure(None), "struct=@a,b=c.npy", (), "a,b=c.npy"),
    ],
)
def test_a_structure_is_its_numbers_or_its_bytes(
    parameter: KernelParameter, text: str, members: Any, path: str
) -> None:
    expected = tuple((at, Scalar(*rest)) for at, *rest in members)

    assert bind_arguments([text], [parameter]) == (Structure("p", 24, 8, expected, path),)


@pytest.mark.parametrize(
    ("parameter", "text", "said"),
    [
        (PAIR, "f32=1", "passed by value, got 'f32=1': write struct=2.0,1 (scale f64, at[1] i16)"),
        (PAIR, "null", "passed by value, got 'null': write struct="),
        (PAIR, "struct=1", "is a structure of 2 numbers, got 'struct=1': write struct=2.0,1"),
        (PAIR, "struct=1,2,3", "is a structure of 2 numbers, got 'struct=1,2,3'"),
        (PAIR, "struct=1,", "argument 0 (p, Params).at[1]: '' is not of type i16"),
        (
            PAIR,
            "struct=1,40000",
            "(p, Params).at[1]: '40000' is not of type i16: write a whole number",
        ),
        (PAIR, "struct=@", "@ names no file"),
        (PAIR, "struct[3]=1", "passed by value, got 'struct[3]=1': write struct=2.0,1"),
        (PAIR, "in:struct=1,2", "'in:struct=1,2' has no dimensions: write in:struct[N]"),
        (PAIR, "double2=1,2", "is a structure, got 'double2=1,2': write struct=2.0,1 (scale f64,"),
        (structure(), "struct=1", "is a structure of 0 numbers, got 'struct=1': write struct, for"),
        (structure(None), "struct=1", "write struct=@FILE.npy, a file with its 24 bytes as u8"),
        (
            structure(("n", "i32", 0, "int"), ("call", "", 8, "void (*)(int)")),
            "struct=1,2",
            "is a structure whose member call (void (*)(int)) is no number, pointer to data",
        ),
        (
            KernelParameter("f", "structure", "", "void (*)(int)", 8),
            "struct",
            "argument 0 (f, void (*)(int)) is a function passed by value",
        ),
    ],
)
def test_what_a_structure_cannot_be_is_said(
    parameter: KernelParameter, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as error:
        bind_arguments([text], [parameter])

    assert said in str(error.value)


VIEW = replace(
    structure(),
    name="view",
    parts=(
        StructureMember("data", "", 0, "float *", replace(SAXPY[2], name="data")),
        StructureMember("rows", "i32", 8, "int"),
        StructureMember("mask", "", 16, "const float *", replace(SAXPY[1], name="mask")),
    ),
)


def test_a_structure_holds_arrays_where_its_pointers_stand() -> None:
    view, x = bind_arguments(
        ["struct=inout:f32[2,3]=ones, 2, @x", "f32[6]"], [VIEW, replace(SAXPY[1], name="x")]
    )

    data = Buffer("view.data", (2, 3), "float32", "inout", SingleValue(1))
    mask = ArrayAlias("view.mask", "x", "float32")
    members = ((0, data), (8, Scalar("rows", "int32", 2)), (16, mask))
    assert view == Structure("view", 24, 8, members)
    addresses = {"view.data": 0x700, "x": 0x900}
    assert argument_bytes(view, addresses) == struct.pack("<QiiQ", 0x700, 2, 0, 0x900)
    assert argument_bytes(x, addresses) == struct.pack("<Q", 0x900)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["struct=f32[4],1,@z", "f32[4]"], "view.mask is @z, and no array argument has this name"),
        (["struct=f32[4],1,null", "@p.npy"], "for an array from a file write f32[]=@p.npy"),
        (["struct=f32[4],1,@x", "f64[4]"], "view.mask points to float32, and @x is an array of f"),
        (["struct=f32[4],1", "f32[4]"], "is a structure of 3 values, got 'struct=f32[4],1'"),
        (["struct=@view.npy", "f32[4]"], "write struct=inout:f32[N],1,in:f32[N] (data float *,"),
        (["struct=1,1,null", "f32[4]"], ".data (float *) takes an array, got '1': write inout:f32"),
        (["struct=f32[4],f32[4],null", "f32[4]"], "(view, Params).rows: 'f32[4]' is not of type"),
        (["struct=f64[4],1,null", "f32[4]"], "(view, Params).data (float *) points to f32, got"),
        (["struct=f32[4],1,out:f32[4]", "f32[4]"], "is a pointer to const, through which no"),
        (["struct=f32[4],1,null", "@"], "'@' names no array: write @NAME"),
    ],
)
def test_what_a_pointer_in_a_structure_cannot_be_is_said(texts: list[str], said: str) -> None:
    parameter = KernelParameter("x", "pointer", "", "void *", 8)
    with pytest.raises(UsageError) as error:
        bind_arguments(texts, [VIEW, parameter])

    assert said in str(error.value)


def test_a_pointer_may_point_to_an_element() -> None:
    texts = ["struct=inout:f32[2,3]+4=ones, 2, @x+0x2", "f32[6] + 5"]
    view, x = bind_arguments(texts, [VIEW, replace(SAXPY[1], name="x")])

    addresses = {"view.data": 0x700, "x": 0x900}
    assert argument_bytes(view, addresses) == struct.pack("<QiiQ", 0x710, 2, 0, 0x908)
    assert argument_bytes(x, addresses) == struct.pack("<Q", 0x914)
    assert isinstance(view, Structure)
    data = Buffer("view.data", (2, 3), "float32", "inout", SingleValue(1), start=4)
    assert view.members[0] == (0, data)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ("f32[8]+8", "null", "'f32[8]+8' points to element 8 of 8: use 0 to 7"),
        ("f32[8]+-1", "null", "'f32[8]+-1' points to no element: write a whole number from 0"),
        ("f32[8]+", "null", "points to no element"),
        ("f32[8]+n", "null", "points to no element"),
        ("f32[8]", "@x+8", "y is @x+8, and the array has 8 elements: use at most +7"),
        ("f32[8]", "@x+1.5", "'@x+1.5' points to no element"),
    ],
)
def test_an_element_that_no_array_has_is_refused(x: str, y: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        bind_arguments(["f32=1", x, y, "i32=1"], SAXPY)

    assert said in str(error.value)


def test_long_structures_are_told_in_part() -> None:
    parts = [(f"a[{at}]", "f32", 4 * at, "float") for at in range(100)]
    with pytest.raises(UsageError) as error:
        bind_arguments(["struct"], [structure(*parts)])

    assert "a[7] f32, and 92 more), or struct=@FILE.npy with its 24 bytes" in str(error.value)


def test_a_pointer_may_be_null_and_nothing_else() -> None:
    bound = bind_arguments(["f32=1", "null", " null ", "i32=1"], SAXPY)

    assert bound[1:3] == (NullPointer("x"), NullPointer("y"))
    with pytest.raises(UsageError, match=r"argument 0 \(a, float\) takes a scalar, got 'null'"):
        bind_arguments(["null", "null", "null", "i32=1"], SAXPY)


def test_a_wrong_count_is_refused() -> None:
    with pytest.raises(UsageError, match=r"takes 4 arguments \(float a, .*int n\), got 1"):
        bind_arguments(["f32=1"], SAXPY)


@given(st.sampled_from(sorted(set(NUMPY_DTYPES) - {"bool"})), st.integers(-(2**70), 2**70))
def test_scalars_are_taken_exactly_where_the_type_holds_them(dtype: str, value: int) -> None:
    least, most = numpy_range(dtype)
    try:
        found: Any = parse_specification(f"{dtype}={value}")
    except UsageError:
        assert not least <= value <= most
    else:
        assert least <= value <= most
        assert found.value == (float(value) if dtype in MAX_FLOATS else value)


@given(st.floats(width=64), st.sampled_from(sorted(MAX_FLOATS)))
def test_floats_are_taken_where_the_largest_finite_value_allows(value: float, dtype: str) -> None:
    _, most = numpy_range(dtype)
    fits = not np.isfinite(value) or abs(value) <= most
    try:
        parse_specification(f"{dtype}={value!r}")
    except UsageError:
        assert not fits
    else:
        assert fits


@given(st.text(alphabet="inout:f32i[],=@randint:0x_e.-*structl \n\x00é", max_size=24))
def test_any_text_is_an_argument_or_a_usage_error(text: str) -> None:
    said = ""
    try:
        found: Any = parse_specification(text)
    except UsageError as error:
        said = str(error)
    else:
        assert found.text == text
    assert "\n" not in said
