"""The data of a launch before it runs: the same inputs and poisoned outputs on every device."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device import structure_arrays
from memlab.device.structure_arrays import array_type, element_type
from memlab.errors import UsageError
from memlab.kernels.launch import (
    TENSOR_MAP_BYTES,
    Arange,
    Argument,
    ArrayAlias,
    Buffer,
    Constant,
    Fill,
    InMemoryArray,
    Launch,
    MemberFills,
    NpyFile,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    TensorMap,
    Uniform,
)
from memlab.kernels.user.arguments import array_files

POINTER_BYTES = 8
_LARGE_ELEMENTS = 1 << 22  # of an array that takes longer to fill than threads to start
POISON_BYTE = 0xFF  # a NaN in every float format, so that unwritten elements are detected


def make_inputs(
    launch: Launch,
    seed: int,
    into: Mapping[str, NDArray[Any]] | None = None,
    poisoned: Sequence[NDArray[np.uint8]] = (),
) -> dict[str, NDArray[Any]]:
    """Make the inputs of a launch: input arrays and `__constant__` arrays.

    Args:
        launch: The launch.
        seed: The seed of random values; the same seed gives the same arrays on every device.
        into: Arrays by name to fill in place; missing ones are allocated.
        poisoned: The bytes of other arrays, to fill with `POISON_BYTE`.

    Returns:
        Arrays by name, with the inputs' shapes and types.

    Raises:
        UsageError: The seed is invalid, or a file does not hold such an array.
    """
    check_seed(seed)
    arrays: dict[str, NDArray[Any]] = {}
    fills: list[Callable[[], None]] = []
    for number, item in enumerate(launch.inputs):
        array = (into or {}).get(item.name)
        if array is None:
            array = np.zeros(item.shape, array_type(item))  # with the padding of structures
        arrays[item.name] = array
        generator = np.random.default_rng([seed, number])
        fills.append(partial(_fill_array, array, item.fill, generator, item.name))
    fills += [partial(each.fill, POISON_BYTE) for each in poisoned]
    if max((array.size for array in arrays.values()), default=0) < _LARGE_ELEMENTS:
        for fill in fills:
            fill()
    else:
        from concurrent.futures import ThreadPoolExecutor

        # Each array has a generator of its own, so they can be filled at the same time.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(fill) for fill in fills]:
                done.result()  # raises what filling an array raised
    return arrays


def place_members(
    launch: Launch,
    arrays: Mapping[str, NDArray[Any]],
    addresses: Mapping[str, int],
    encode: Callable[[TensorMap, int], bytes],
) -> None:
    """Write the pointers, numbers and tensor maps that arrays hold besides their fills.

    Args:
        launch: The launch.
        arrays: Its input arrays by name, contiguous; they are changed in place.
        addresses: The addresses of all its arrays, by name.
        encode: As for `argument_bytes`.
    """
    holders: tuple[Buffer | Constant, ...] = (*launch.buffers, *launch.constants)
    for buffer in holders:
        raw = array_bytes(arrays[buffer.name]) if buffer.members else np.empty(0, np.uint8)
        for offset, member in buffer.members:
            part = argument_bytes(member, addresses, encode)
            raw[offset : offset + len(part)] = np.frombuffer(part, np.uint8)


def array_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a contiguous array, padding included, as a view, shape (bytes,)."""
    return array.reshape(-1).view(np.uint8)


def check_seed(seed: int) -> None:
    """Refuse a seed that random inputs cannot use.

    Raises:
        UsageError: The seed is not a whole number, or is negative.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise UsageError(f"seed must be a whole number, 0 or more, got {seed!r}: use 0")


def tensor_address(item: TensorMap, addresses: Mapping[str, int]) -> int:
    """The address of the first element of a tensor."""
    array = item.array.array if isinstance(item.array, ArrayAlias) else item.array.name
    return addresses[array] + item.array.offset_bytes


def argument_bytes(
    argument: Argument,
    addresses: Mapping[str, int],
    encode: Callable[[TensorMap, int], bytes] | None = None,
) -> bytes:
    """The bytes that a kernel receives for one parameter.

    Args:
        argument: The argument.
        addresses: The addresses of the arrays, by name.
        encode: Makes the device's form of a tensor map, whose tensor begins at an address.

    Raises:
        UsageError: A file does not hold such a structure.
    """
    match argument:
        case Buffer(name):
            return (addresses[name] + argument.offset_bytes).to_bytes(POINTER_BYTES, "little")
        case ArrayAlias(_, array):
            return (addresses[array] + argument.offset_bytes).to_bytes(POINTER_BYTES, "little")
        case NullPointer():
            return bytes(POINTER_BYTES)
        case Scalar(_, dtype, value):
            return np.array(value, element_type(dtype)).tobytes()
        case TensorMap():
            assert encode is not None
            return encode(argument, tensor_address(argument, addresses))
    if argument.path:
        return load_array(argument.path, (argument.nbytes,), "uint8").tobytes()
    whole = bytearray(argument.nbytes)
    for offset, member in argument.members:
        if isinstance(member, Scalar) and member.bits is not None:
            _place_bits(whole, offset, member.bits, int(member.value))
            continue
        part = argument_bytes(member, addresses, encode)
        whole[offset : offset + len(part)] = part
    return bytes(whole)


def _place_bits(whole: bytearray, offset: int, bits: tuple[int, int], value: int) -> None:
    """Write a bit-field into bytes that hold zeros there."""
    first, width = bits
    size = -(-(first + width) // 8)
    held = int.from_bytes(whole[offset : offset + size], "little")
    held |= (value % 2**width) << first
    whole[offset : offset + size] = held.to_bytes(size, "little")


def alignment_of(argument: Argument) -> int:
    """The alignment of a parameter, bytes."""
    match argument:
        case Structure(alignment_bytes=alignment):
            return alignment
        case Scalar(_, dtype):
            return element_type(dtype).itemsize
        case TensorMap():
            return TENSOR_MAP_BYTES
    return POINTER_BYTES


def pack_arguments(
    arguments: Sequence[Argument],
    addresses: Mapping[str, int],
    encode: Callable[[TensorMap, int], bytes] | None = None,
) -> bytes:
    """The bytes of all arguments, aligned as members of a structure in C.

    Arguments and errors are those of `argument_bytes`.
    """
    packed = b""
    for argument in arguments:
        part = argument_bytes(argument, addresses, encode)
        alignment = alignment_of(argument)
        packed = packed.ljust(-(-len(packed) // alignment) * alignment, b"\0") + part
    return packed


def load_array(path: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Read an array from a file in NumPy's format.

    Args:
        path: The file.
        shape: The shape of the result; the file may hold the same elements in another shape.
        dtype: The name of the element type.

    Raises:
        UsageError: There is no such file, or it does not hold such an array.
    """
    array = array_files.open_array(path)
    wanted, size = element_type(dtype), int(np.prod(shape))
    # Files have no name for bfloat16: NumPy writes it as two raw bytes.
    raw = wanted.name == "bfloat16" and array.dtype.itemsize == wanted.itemsize
    if array.size != size or not (array.dtype == wanted or raw):
        raise UsageError(
            f"{path} holds {array.dtype}{list(array.shape)}, and {dtype}{list(shape)} is needed: "
            "convert it with numpy, or declare what it holds"
        )
    return array.view(wanted).reshape(shape)


def _fill_array(
    array: NDArray[Any], fill: Fill | None, generator: np.random.Generator, name: str
) -> None:
    """Fill an array in place; messages give its name."""
    match fill:
        case SingleValue(value):
            array[...] = value
        case Arange():
            array[...] = np.arange(array.size).reshape(array.shape).astype(array.dtype)
        case NpyFile(path) if array.dtype.names is not None:
            values = array_files.open_array(path)
            if values.size != array.size:
                raise UsageError(
                    f"{path} holds {values.size} elements, and {array.size} structures are needed: "
                    "give as many, or declare what it holds"
                )
            _fill_structures(array, values, path)
        case NpyFile(path):
            array[...] = load_array(path, array.shape, array.dtype.name)
        case InMemoryArray(values) if array.dtype.names is not None:
            _fill_structures(array, values, f"the array for {name}")
        case InMemoryArray(values):
            array[...] = values
        case _ if array.dtype.names is not None:
            parts = list(structure_arrays.numbers_of(array))
            fills = fill.fills if isinstance(fill, MemberFills) else (None,) * len(parts)
            for part, each in zip(parts, fills, strict=True):
                numbers = np.empty(part.shape, part.dtype)  # without gaps between them
                _fill_array(numbers, each, generator, name)
                part[...] = numbers
        case Uniform() | None:
            _fill_random(array, fill, generator)


def _fill_structures(array: NDArray[Any], values: NDArray[Any], origin: str) -> None:
    """Fill an array of structures with those of another layout.

    Raises:
        UsageError: Their numbers are others; `origin` begins the message.
    """
    wanted = structure_arrays.mismatch(values.dtype, array.dtype)
    if wanted:
        raise UsageError(
            f"{origin} holds {structure_arrays.type_text(values.dtype)}, and {wanted} are needed, "
            "in this order: give a NumPy array of such a structured type"
        )
    structure_arrays.copy_structures(array, values.reshape(array.shape))


def _fill_random(array: NDArray[Any], fill: Uniform | None, generator: np.random.Generator) -> None:
    """Draw random values: floats uniform in [0, 1), integers over their range, or as `fill` says.

    The values are not zeros, which would hide wrong indexing and make a GPU draw less power.
    """
    if array.dtype.kind not in "iub":  # floats, including `ml_dtypes`
        low, high = (0.0, 1.0) if fill is None else (fill.low, fill.high)
        drawn = array if array.dtype.itemsize >= 4 else np.empty(array.shape, np.float32)
        generator.random(out=drawn, dtype=drawn.dtype)
        if fill is not None:
            drawn *= high - low
            drawn += low
        if drawn is not array:
            end = array.dtype.type(high)
            below = np.nextafter(
                end, array.dtype.type(low)
            )  # replaces values that are rounded to the end
            array[...] = drawn
            array[array >= end] = below
        return
    if array.dtype.kind == "b":
        array[...] = generator.integers(0, 2, array.shape)
        return
    info = np.iinfo(array.dtype)
    low, high = (info.min, info.max + 1) if fill is None else (int(fill.low), int(fill.high))
    array[...] = generator.integers(low, high, array.shape, array.dtype)


def count_unwritten(output: NDArray[Any]) -> int:
    """Count the elements of an output that still hold the poison.

    Integer outputs count as written, since all bits set is an ordinary value: -1. A structure
    counts if one of its numbers does.
    """
    if output.dtype.names is not None:
        flat = output.reshape(-1)
        missing = np.zeros(flat.size, np.bool_)
        for numbers in structure_arrays.numbers_of(flat):
            missing |= _holds_poison(numbers).reshape(flat.size, -1).any(axis=1)
        return int(np.count_nonzero(missing))
    return int(np.count_nonzero(_holds_poison(output.reshape(-1))))


def _holds_poison(output: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers still hold the poison; never integers."""
    if output.dtype.kind in "iub":
        return np.zeros(output.shape, np.bool_)
    raw = np.ascontiguousarray(output).view(f"u{output.dtype.itemsize}")
    poisoned: NDArray[np.bool_] = raw == np.iinfo(raw.dtype).max
    return poisoned
