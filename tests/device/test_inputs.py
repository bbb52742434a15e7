"""Inputs: the same on every device, in the requested range, filled in place if they exist."""

import ctypes
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device import inputs as device_inputs
from memlab.device.gpu.device import _argument_words
from memlab.device.inputs import (
    POISON_BYTE,
    count_unwritten,
    element_type,
    load_array,
    make_inputs,
    pack_arguments,
)
from memlab.errors import UsageError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import (
    Argument,
    Buffer,
    Fill,
    Launch,
    NullPointer,
    Scalar,
    Structure,
    Uniform,
)

LIMITS = Limits("any")


def scattered(n: int) -> Launch:
    return find_kernel("scattered").prepare({"n": n}, LIMITS)


def test_large_arrays_are_drawn_as_if_one_after_the_other() -> None:
    shape = (2100, 2000)
    arguments = (Buffer("a", shape, "float32", "in"), Buffer("b", shape, "float32", "in"))
    drawn = make_inputs(replace(scattered(64), arguments=arguments), seed=7)

    for number, name in enumerate("ab"):
        expected = np.random.default_rng([7, number]).random(shape, np.float32)
        assert np.array_equal(drawn[name], expected)


def test_indices_stay_in_the_array() -> None:
    index = make_inputs(scattered(1000), seed=3)["index"]

    assert index.dtype == np.int32
    assert index.min() >= 0
    assert index.max() < 1000
    assert len(np.unique(index)) > 500


def test_floats_fill_the_unit_interval() -> None:
    values = make_inputs(scattered(1000), seed=3)["a"]

    assert 0 <= values.min() < 0.01
    assert 0.99 < values.max() < 1


@pytest.mark.parametrize(
    ("dtype", "fill", "low", "high"),
    [
        ("uint8", None, 0, 255),
        ("int8", None, -128, 127),
        ("int8", Uniform(-128, 128), -128, 127),
        ("bool", None, 0, 1),
        # The largest float16 below 1, and bfloat16 below 3: both round 0.9999 of the range up.
        ("float16", None, 0, 1 - 2**-11),
        ("bfloat16", Uniform(2, 3), 2, 3 - 2**-6),
    ],
)
def test_random_elements_fill_their_range_and_no_more(
    dtype: str, fill: Fill | None, low: float, high: float
) -> None:
    array = Buffer("a", (100_000,), dtype, "in", fill)
    values = make_inputs(replace(scattered(8), arguments=(array,)), seed=0)["a"]

    assert (float(values.min()), float(values.max())) == pytest.approx((low, high), abs=2e-5)
    assert float(values.max()) <= high


def test_a_file_must_hold_the_elements_in_any_shape(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    np.save(path, np.arange(6, dtype=np.int32))

    assert load_array(path, (2, 3), "int32").tolist() == [[0, 1, 2], [3, 4, 5]]
    for shape, dtype in [((5,), "int32"), ((2, 4), "int32"), ((6,), "float32"), ((6,), "int64")]:
        with pytest.raises(UsageError, match=r"holds int32\[6\], and"):
            load_array(path, shape, dtype)


def test_bfloat16_is_two_raw_bytes_in_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    np.save(path, np.array([1.5, -2.0], element_type("bfloat16")))
    assert load_array(path, (2,), "bfloat16").astype(float).tolist() == [1.5, -2.0]
    np.save(path, np.zeros(2, np.float32))
    with pytest.raises(UsageError, match="holds float32"):
        load_array(path, (2,), "bfloat16")


def test_constants_are_inputs() -> None:
    launch = find_kernel("filter-constant").prepare({"n": 10}, LIMITS)

    assert {name: array.shape for name, array in make_inputs(launch, seed=0).items()} == {
        "in": (25,),
        "coefficients": (16,),
    }


@pytest.mark.parametrize("large", [1 << 22, 1], ids=["one after the other", "at once"])
def test_existing_arrays_are_filled_in_place(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    launch = scattered(100)
    given, output = {"index": np.zeros(100, np.int32)}, np.zeros(8, np.uint8)
    monkeypatch.setattr(device_inputs, "_LARGE_ELEMENTS", large)

    arrays = make_inputs(launch, 5, given, [output[2:]])

    assert arrays["index"] is given["index"]
    assert output.tolist() == [0, 0, *[POISON_BYTE] * 6]
    for name, array in make_inputs(launch, seed=5).items():
        np.testing.assert_array_equal(arrays[name], array)


def test_different_seeds_and_arrays_get_different_values() -> None:
    launch = find_kernel("naive").prepare({"width": 8}, LIMITS)

    first, second = make_inputs(launch, seed=1), make_inputs(launch, seed=2)

    assert not np.array_equal(first["M"], second["M"])
    assert not np.array_equal(first["M"], first["N"])


def test_a_negative_seed_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="seed must be a whole number, 0 or more, got -1"):
        make_inputs(scattered(8), seed=-1)


@pytest.mark.parametrize(
    ("dtype", "count"), [("float32", 3), ("float16", 3), ("float64", 3), ("int32", 0), ("uint8", 0)]
)
def test_only_values_that_no_number_has_count_as_unwritten(dtype: str, count: int) -> None:
    """A kernel may write -1 or 255; nothing that it computes is NaN with all bits set."""
    output = np.zeros(8, dtype)
    output.view(np.uint8)[: 3 * output.itemsize] = POISON_BYTE

    assert count_unwritten(output) == count


C_TYPES: dict[str, Any] = {
    "int8": ctypes.c_int8,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
}
KINDS = st.sampled_from(sorted(C_TYPES))


def _structure(name: str, kinds: list[str]) -> tuple[Any, Structure]:
    """A structure for ctypes and the same structure as an argument; its numbers count from 1."""
    fields = [(f"m{at}", C_TYPES[kind]) for at, kind in enumerate(kinds)]
    made = type("Made", (ctypes.Structure,), {"_fields_": fields})
    members = tuple(
        (getattr(made, f"m{at}").offset, Scalar(f"m{at}", kind, 1 if kind == "bool" else at + 1))
        for at, kind in enumerate(kinds)
    )
    return made, Structure(name, ctypes.sizeof(made), ctypes.alignment(made), members)


@given(st.lists(KINDS | st.lists(KINDS, min_size=1, max_size=5) | st.sampled_from("*0")))
def test_arguments_lie_where_a_compiler_puts_the_members_of_a_structure(kinds: list[Any]) -> None:
    arguments: list[Argument] = []
    fields: list[Any] = []
    values: list[Any] = []
    for at, kind in enumerate(kinds):
        name = f"a{at}"
        if isinstance(kind, list):
            made, structure = _structure(name, kind)
            fields.append((name, made))
            values.append(made(*(member.value for _, member in structure.members)))
            arguments.append(structure)
        elif kind in "*0":
            fields.append((name, ctypes.c_uint64))
            values.append(0x7F00_0000_1234 if kind == "*" else 0)
            arguments.append(
                Buffer(name, (1,), "float32", "in") if kind == "*" else NullPointer(name)
            )
        else:
            fields.append((name, C_TYPES[kind]))
            values.append(1 if kind == "bool" else at + 1)
            arguments.append(Scalar(name, kind, values[-1]))
    whole = type("Whole", (ctypes.Structure,), {"_fields_": fields})(*values)

    found = pack_arguments(arguments, {argument.name: 0x7F00_0000_1234 for argument in arguments})

    assert found == bytes(whole)[: len(found)]
    assert ctypes.sizeof(whole) - len(found) < 8  # what C appends, for the next of an array
    words = _argument_words(found)  # as PyCUDA puts them together again
    assert struct.pack("".join(word.dtype.char for word in words), *words) == found
