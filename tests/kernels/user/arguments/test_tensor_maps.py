"""Tensor maps as arguments: their texts, what they are bound to, and the driver's rules."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import memlab
from memlab.errors import UsageError
from memlab.kernels.launch import ArrayAlias, Buffer, TensorBox, TensorMap
from memlab.kernels.signature import KernelParameter
from memlab.kernels.tensor_maps import check_tensor_map
from memlab.kernels.user.arguments.binding import bind_arguments
from memlab.kernels.user.symbols import evaluate_argument
from tests.support.paths import DATA

MAP = KernelParameter("m", "structure", "", "const CUtensorMap", 128)
POINTER = KernelParameter("x", "pointer", "f32", "float *", 8)


def bind(text: str) -> TensorMap:
    item, _ = bind_arguments([text, "inout:f32[64,64]"], [MAP, POINTER])
    assert isinstance(item, TensorMap)
    return item


def test_a_text_gives_all_fields() -> None:
    options = "box[4,8]:step[2,1]:swizzle32:promote128:nan:tf32"
    item = bind(f"tensormap=inout:f32[8,64]:{options}=ones")
    assert isinstance(item.array, Buffer)
    assert (item.array.role, item.array.shape, item.shape) == ("inout", (8, 64), (8, 64))
    assert (item.box.extents, item.box.steps, item.box.swizzle_bytes) == ((4, 8), (2, 1), 32)
    assert (item.box.fill, item.box.promotion_bytes, item.conversion) == ("nan", 128, "tf32")
    assert item.pitches_bytes == (256,)


def test_maps_and_pointers_share_an_array() -> None:
    item = bind("tensormap=@x+64[8,32]:box[8,32]:strides[256]")
    assert item.array == ArrayAlias("m", "x", "", 64, 4)
    assert (item.dtype, item.shape, item.pitches_bytes) == ("float32", (8, 32), (256,))
    assert bind("tensormap=@x:box[8,32]").shape == (64, 64)


def test_python_gives_the_same_map() -> None:
    values = np.zeros((64, 64), np.float32)
    given = memlab.tensor_map(values, box=(4, 8), step=(2, 1), swizzle=32, fill="nan")
    item, _ = bind_arguments([given, "inout:f32[64,64]"], [MAP, POINTER])
    assert isinstance(item, TensorMap)
    assert item.box == bind("tensormap=f32[64,64]:box[4,8]:step[2,1]:swizzle32:nan").box
    alias, _ = bind_arguments([memlab.tensor_map("@x", box=(8, 32)), "f32[64,64]"], [MAP, POINTER])
    assert alias == bind("tensormap=@x:box[8,32]")


def test_numbers_are_expressions_of_symbols() -> None:
    text = evaluate_argument("tensormap=f16[N,2*N]:box[B,64]:swizzle128", {"N": 512, "B": 128})
    assert text == "tensormap=f16[512,1024]:box[128,64]:swizzle128"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[64]", "takes a tensor map, got 'f32\\[64\\]': write tensormap="),
        ("tensormap=f32[64,64]", "has no box"),
        ("tensormap=f32[64,64]:box[4,8]:swizle32", "unknown option 'swizle32': did you mean"),
        ("tensormap=f32[64,64]:box[4]", "has 1 dimension, and the tensor has 2"),
        ("tensormap=f32[64,64]:box[257,8]", "extents are from 1 to 256"),
        ("tensormap=f32[64,64]:box[4,6]", "has 24 bytes, and it must have a multiple of 16"),
        ("tensormap=f32[64,64]:box[4,16]:swizzle32", "has 64 bytes, and with swizzle32 at most 32"),
        ("tensormap=f32[64,63]:box[4,8]", "stride of 252 bytes, and strides are multiples of 16"),
        ("tensormap=@x+2[8,32]:box[8,32]", "begins 8 bytes into its array"),
        ("tensormap=@x+64[64,64]:box[8,32]", "needs 16640 bytes, and its array has 16384"),
        ("tensormap=@y:box[8,32]", "no array argument has this name"),
        ("tensormap=f32[1,1,1,1,4,4]:box[1,1,1,1,4,4]", "6 dimensions, and a map has at most 5"),
        ("tensormap=i32[64,64]:box[4,8]:nan", "int32 has no NaN"),
        ("tensormap=f16[64,64]:box[4,8]:tf32", "tf32 converts float32"),
        ("tensormap=f32[64,64]:box[4,8]:step[9,1]", "give 2 numbers from 1 to 8"),
        ("tensormap=f32[64,64]:box[4,8]:step[1,2]", "write 1 there"),
        ("tensormap=f32[64,64,4]:box[4,8]:interleave16", "needs a tensor of 3 dimensions"),
        ("tensormap=f16[2,4,8,8,4]:box[1,1,4,8]:interleave16", "a slice of 8 elements of float16"),
        ("tensormap=@x[4,4,8,9]:box[1,1,4,8]:interleave16", "needs 18432 bytes, and its array has"),
        ("tensormap=f16[2,4,8,8]:box[1,4,4]:interleave16", "8 elements of float16, which count sl"),
        (
            "tensormap=f16[2,4,8,16]:box[1,4,8]:strides[48,16]:interleave32:swizzle32",
            "stride of 48 bytes, and strides are multiples of 32",
        ),
        ("tensormap=u64[3,3,256,256,2]:box[2,1,256,256]:interleave16", "has 2097152 bytes, and a"),
        ("tensormap=f32[4,8,8,8]:box[4,8]:lower[-1,-1]:upper[-9,0]", "lies no pixel"),
        ("tensormap=f32[4,8,8,8]:box[4,8]:lower[-200,-1]:upper[0,0]", "numbers from -128 to 127"),
    ],
)
def test_what_the_driver_refuses_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        bind(text)
    assert "\n" not in str(raised.value)


def test_other_parameters_take_no_map() -> None:
    with pytest.raises(UsageError, match="takes no tensor map"):
        bind_arguments(["tensormap=f32[64,64]:box[4,8]"], [POINTER])


@pytest.mark.parametrize(
    ("file", "count"), [("h200-tensor-maps.csv", 500), ("h200-interleaved-maps.csv", 300)]
)
def test_the_verdicts_are_those_of_the_driver(file: str, count: int) -> None:
    lines = (DATA / file).read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert len(rows) == count
    for row in rows:
        shape, strides, extents, steps, lower, upper = (
            tuple(int(part) for part in row.get(name, "").split("x") if part)
            for name in ("shape", "strides", "box", "steps", "lower", "upper")
        )
        fill = "nan" if row["nan"] == "1" else "zeros"
        interleave = int(row.get("interleave", "0"))
        corners = (lower, upper) if lower else None
        swizzle = int(row["swizzle"])
        box = TensorBox(extents, steps, swizzle, interleave, fill=fill, corners=corners)
        array = Buffer("a", (1,), row["dtype"], "in")
        item = TensorMap("a", array, row["dtype"], shape, box, strides)
        try:
            check_tensor_map(item, 1 << 45, int(row["start"]), "the map")
            accepted = True
        except UsageError:
            accepted = False
        assert accepted == bool(int(row["accepted"])), row
