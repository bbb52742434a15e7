"""What a kernel finds in memory: the same inputs and poisoned outputs on every device."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.errors import UsageError
from memlab.kernels.launch import (
    Arange,
    Argument,
    Buffer,
    Fill,
    InMemoryArray,
    Launch,
    NpyFile,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    Uniform,
)
from memlab.kernels.user import array_files

POINTER_BYTES = 8
POISON_BYTE = 0xFF  # a NaN in every float format, so that an element never written is seen


def make_inputs(
    launch: Launch, seed: int, into: Mapping[str, NDArray[Any]] | None = None
) -> dict[str, NDArray[Any]]:
    """Make what a launch reads: arguments and `__constant__` arrays.

    Args:
        launch: What will run.
        seed: The same seed gives the same arrays on every device.
        into: Arrays by name to fill in place; those that are not there are made.

    Returns:
        Arrays by name, in the inputs' shapes and types.

    Raises:
        UsageError: The seed is none, or a file does not hold such an array.
    """
    check_seed(seed)
    arrays = {}
    for number, each in enumerate(launch.inputs):
        given = (into or {}).get(each.name)
        array = np.empty(each.shape, element_type(each.dtype)) if given is None else given
        arrays[each.name] = array
        _fill_array(array, each.fill, np.random.default_rng([seed, number]))
    return arrays


def check_seed(seed: int) -> None:
    """Refuse what random inputs cannot begin with.

    Raises:
        UsageError: It is no whole number, or negative.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise UsageError(f"seed must be a whole number, 0 or more, got {seed!r}: use 0")


def argument_bytes(argument: Argument, addresses: Mapping[str, int]) -> bytes:
    """What a kernel gets for one parameter.

    Args:
        argument: The argument.
        addresses: Where the arrays lie, by name.

    Raises:
        UsageError: A file does not hold such a structure.
    """
    match argument:
        case Buffer(name):
            return addresses[name].to_bytes(POINTER_BYTES, "little")
        case NullPointer():
            return bytes(POINTER_BYTES)
        case Scalar(_, dtype, value):
            return np.array(value, element_type(dtype)).tobytes()
    if argument.path:
        return load_array(argument.path, (argument.nbytes,), "uint8").tobytes()
    whole = bytearray(argument.nbytes)
    for offset, member in argument.members:
        part = argument_bytes(member, {})
        whole[offset : offset + len(part)] = part
    return bytes(whole)


def pack_arguments(arguments: Sequence[Argument], addresses: Mapping[str, int]) -> bytes:
    """All that a kernel gets, each argument at a multiple of its alignment, as C lays out members.

    Arguments and errors are those of `argument_bytes`.
    """
    whole = b""
    for each in arguments:
        part = argument_bytes(each, addresses)
        alignment = each.alignment_bytes if isinstance(each, Structure) else len(part)
        whole = whole.ljust(-(-len(whole) // alignment) * alignment, b"\0") + part
    return whole


def element_type(name: str) -> np.dtype[Any]:
    """NumPy's type of this name, `bfloat16` among them."""
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401 (registers it)
    return np.dtype(name)


def load_array(path: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Read an array from a file in NumPy's format.

    Args:
        path: The file.
        shape: What it must hold, in as many dimensions or flat.
        dtype: Of what type.

    Raises:
        UsageError: There is no such file, or it does not hold such an array.
    """
    array = array_files.open_array(path)
    wanted, size = element_type(dtype), int(np.prod(shape))
    # bfloat16 has no name in files: NumPy writes it as two raw bytes.
    raw = wanted.name == "bfloat16" and array.dtype.itemsize == wanted.itemsize
    if array.size != size or not (array.dtype == wanted or raw):
        raise UsageError(
            f"{path} holds {array.dtype}{list(array.shape)}, and {dtype}{list(shape)} is needed: "
            "convert it with numpy, or declare what it holds"
        )
    return array.view(wanted).reshape(shape)


def _fill_array(array: NDArray[Any], how: Fill | None, generator: np.random.Generator) -> None:
    """Fill an array in place."""
    match how:
        case SingleValue(value):
            array[...] = value
        case Arange():
            array[...] = np.arange(array.size).reshape(array.shape).astype(array.dtype)
        case NpyFile(path):
            array[...] = load_array(path, array.shape, array.dtype.name)
        case InMemoryArray(given):
            array[...] = given
        case Uniform() | None:
            _fill_random(array, how, generator)


def _fill_random(array: NDArray[Any], how: Uniform | None, generator: np.random.Generator) -> None:
    """Draw at random: floats uniform in [0, 1), integers over their range, or as told.

    Never zeros: these hide wrong indexing, and a GPU draws less power on them.
    """
    if array.dtype.kind not in "iub":  # floats; those of `ml_dtypes` have a kind of their own
        low, high = (0.0, 1.0) if how is None else (how.low, how.high)
        drawn = array if array.dtype.itemsize >= 4 else np.empty(array.shape, np.float32)
        generator.random(out=drawn, dtype=drawn.dtype)
        if how is not None:
            drawn *= high - low
            drawn += low
        if drawn is not array:
            end = array.dtype.type(high)
            below = np.nextafter(end, array.dtype.type(low))  # where rounding reaches the end
            array[...] = drawn
            array[array >= end] = below
        return
    if array.dtype.kind == "b":
        array[...] = generator.integers(0, 2, array.shape)
        return
    info = np.iinfo(array.dtype)
    low, high = (info.min, info.max + 1) if how is None else (int(how.low), int(how.high))
    array[...] = generator.integers(low, high, array.shape, array.dtype)


def count_unwritten(output: NDArray[Any]) -> int:
    """Count the elements of an output that still hold nothing but poison.

    Whole numbers may well be all ones, such as -1 for what was not found: of these none count.
    """
    if output.dtype.kind in "iub":
        return 0
    raw = np.ascontiguousarray(output).reshape(-1).view(f"u{output.dtype.itemsize}")
    return int(np.count_nonzero(raw == np.iinfo(raw.dtype).max))
