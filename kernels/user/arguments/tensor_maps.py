"""Tensor maps as arguments: `tensormap=f16[4096,4096]:box[128,64]:swizzle128`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple, TypeVar, cast

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    TENSOR_MAP_BYTES,
    ArrayAlias,
    Buffer,
    InMemoryArray,
    NpyFile,
    SingleValue,
    TensorBox,
    TensorMap,
    dtype_bytes,
)
from memlab.kernels.signature import KernelParameter, ModuleVariable, StructureMember
from memlab.kernels.tensor_maps import INTERLEAVES, PROMOTIONS, SWIZZLES, check_tensor_map
from memlab.kernels.user.arguments.fills import parse_integer
from memlab.kernels.user.arguments.specifications import (
    NUMPY_DTYPES,
    TENSOR_MAP,
    AliasSpecification,
    ArraySpecification,
    Role,
    TensorMapSpecification,
)

EXAMPLE = f"{TENSOR_MAP}=f16[4096,4096]:box[128,64]:swizzle128"
"""For messages."""

AnyMap = TypeVar("AnyMap", bound=TensorMap)
POINTER_BYTES = 8
_TYPE = "CUtensorMap"
_POINTER = re.compile(rf"{_TYPE}\w*(?: const)? ?[*&][^*]*$")
_PATTERN = re.compile(
    r"\s*(?:(?P<role>\w+):)?(?:@(?P<alias>[^\[\]:=+]+)(?:\+(?P<start>[^\[:=]*))?|(?P<number>[a-z]+\d+))"
    r"\s*(?:\[(?P<shape>[^\[\]]*)\])?(?P<options>(?:\s*:[^=]*)?)(?:=(?P<fill>.*))?",
    re.DOTALL,
)
_NUMBERS = re.compile(r"(?P<name>[a-z]+)\s*\[(?P<numbers>[^\[\]]*)\]")
_LISTS = ("box", "strides", "step", "lower", "upper")
_WORDS = {
    **{f"swizzle{size}": ("swizzle_bytes", size) for size in SWIZZLES[1:]},
    **{f"interleave{size}": ("interleave_bytes", size) for size in INTERLEAVES[1:]},
    **{f"promote{size}": ("promotion_bytes", size) for size in PROMOTIONS[1:]},
}
"""The fields of `TensorBox` that a word sets, with their value."""
CONVERSIONS = ("tf32", "ftz", "tf32-ftz")
_FILLS = ("zeros", "nan")


class TensorMapText(NamedTuple):
    """The parts of a tensor map as it is written.

    Attributes:
        role: `in`, `out` or `inout`; empty if it is not written.
        alias: The name of the array of another argument; empty if it has an array of its own.
        start: The text of the element of that array with which the tensor begins.
        dtype: The type of an element; empty for that of the other argument's array.
        shape: The text in the first brackets; None if there are none.
        options: The texts behind it.
        fill: The text behind the last `=`; None if there is none.
    """

    role: str
    alias: str
    start: str
    dtype: str
    shape: str | None
    options: tuple[str, ...]
    fill: str | None


def split_tensor_map(text: str, value: str | None) -> TensorMapText:
    """Split a tensor map; `value` is the text behind `tensormap=`.

    Raises:
        UsageError: It is malformed.
    """
    match = _PATTERN.fullmatch(value or "")
    if match is None or (match["number"] and match["shape"] is None):
        raise UsageError(
            f"{text!r} is no tensor map: write {EXAMPLE}, or {TENSOR_MAP}=@NAME:box[N]"
        )
    if match["alias"] and (match["role"] or match["fill"] is not None):
        raise UsageError(
            f"{text!r}: the argument {match['alias']} has its own role and fill: leave them out"
        )
    words = tuple(word.strip() for word in match["options"].split(":")[1:])
    alias = (match["alias"] or "").strip()
    return TensorMapText(
        match["role"] or "",
        alias,
        match["start"] or "",
        match["number"] or "",
        match["shape"],
        words,
        match["fill"],
    )


def make_specification(
    text: str,
    array: ArraySpecification | AliasSpecification,
    shape: tuple[int, ...],
    options: Sequence[str],
) -> TensorMapSpecification:
    """Make a tensor map by its options.

    Args:
        text: The argument, for messages.
        array: Its array.
        shape: The tensor's extents; empty for those of the array.
        options: Such as `box[128,64]` or `swizzle128`.

    Raises:
        UsageError: There is no such option, or the box is missing.
    """
    lists: dict[str, tuple[int, ...]] = {}
    fields: dict[str, int] = {}
    fill, conversion = "zeros", ""
    for option in options:
        match = _NUMBERS.fullmatch(option)
        if match and match["name"] in _LISTS:
            lists[match["name"]] = _parse_numbers(text, option, match["numbers"])
        elif option in _WORDS:
            name, size = _WORDS[option]
            fields[name] = size
        elif option in _FILLS:
            fill = option
        elif option in CONVERSIONS:
            conversion = option
        else:
            known = [*(f"{name}[...]" for name in _LISTS), *_WORDS, *_FILLS, *CONVERSIONS]
            raise UsageError(
                f"{text!r} has the unknown option {option!r}: {suggest_nearest(option, known)}"
            )
    if "box" not in lists:
        raise UsageError(
            f"{text!r} has no box: add :box[...], the extents that a copy moves, in the order of "
            "the tensor's"
        )
    if ("lower" in lists) != ("upper" in lists):
        raise UsageError(f"{text!r}: im2col needs both corners: add :lower[...] and :upper[...]")
    corners = (lists["lower"], lists["upper"]) if "lower" in lists else None
    box = TensorBox(
        lists["box"],
        lists.get("step", ()),
        fill=cast(Literal["zeros", "nan"], fill),
        corners=corners,
        **fields,
    )
    return TensorMapSpecification(
        array,
        shape,
        box,
        lists.get("strides", ()),
        cast(Literal["", "tf32", "ftz", "tf32-ftz"], conversion),
        text,
    )


def parse_shape(text: str, shape: str | None) -> tuple[int, ...]:
    """The extents in brackets; empty where there are none.

    Raises:
        UsageError: They are no whole numbers from 1 on.
    """
    extents = () if shape is None else _parse_numbers(text, f"[{shape}]", shape)
    if extents and min(extents) < 1:
        raise UsageError(f"{text!r} has invalid dimensions: write whole numbers from 1 on")
    return extents


def _parse_numbers(text: str, option: str, numbers: str) -> tuple[int, ...]:
    values = tuple(parse_integer(part.strip()) for part in numbers.split(","))
    if None in values:
        raise UsageError(f"{text!r}: {option}: write whole numbers, separated by commas")
    return cast(tuple[int, ...], values)


# --- Parameters -----------------------------------------------------------------------------------


def constant_example(variable: ModuleVariable) -> str:
    """What may fill a variable of tensor maps, for messages and files to be completed."""
    count = prod(variable.shape)
    name, equals, value = EXAMPLE.partition("=")
    return f"{name}{f'[{count}]' if variable.shape else ''}{equals}{value}"


def takes_tensor_map(parameter: KernelParameter | StructureMember) -> bool:
    """Whether a parameter, or a member of one, is a tensor map passed by value."""
    return _TYPE in parameter.spelling and "*" not in parameter.spelling


def points_to_tensor_maps(parameter: KernelParameter) -> bool:
    """Whether a parameter is a pointer or reference to tensor maps."""
    return parameter.kind == "pointer" and re.search(_POINTER, parameter.spelling) is not None


def bind_tensor_map(
    argument: TensorMapSpecification, parameter: KernelParameter, label: str
) -> TensorMap:
    """Bind a tensor map to a parameter; it is complete when `resolved_tensor_map` knows its array.

    Raises:
        UsageError: The parameter is none; `label` names it.
    """
    is_untyped = parameter.kind == "untyped" and parameter.nbytes == TENSOR_MAP_BYTES
    if not (takes_tensor_map(parameter) or is_untyped):
        raise UsageError(
            f"{label} takes no tensor map, got {argument.text!r}: declare it const "
            f"__grid_constant__ {_TYPE}, or const {_TYPE} *"
        )
    return tensor_map(argument, parameter.name)


def listed_maps(
    argument: TensorMapSpecification | ArraySpecification,
) -> tuple[TensorMapSpecification, ...]:
    """The tensor maps that an argument lists, one or several; empty where it lists others."""
    given = (argument,) if isinstance(argument, TensorMapSpecification) else argument.elements
    maps = tuple(each for each in given if isinstance(each, TensorMapSpecification))
    return maps if len(maps) == len(given) else ()


def takes_listed_maps(parameter: KernelParameter) -> bool:
    """Whether a parameter may be a pointer to tensor maps."""
    is_untyped = parameter.kind == "untyped" and parameter.nbytes == POINTER_BYTES
    return is_untyped or points_to_tensor_maps(parameter)


def bind_tensor_maps(
    argument: TensorMapSpecification | ArraySpecification,
    maps: Sequence[TensorMapSpecification],
    parameter: KernelParameter,
    label: str,
) -> Buffer:
    """Bind tensor maps to a pointer to maps in global memory.

    Raises:
        UsageError: Their number is not that of the array; `label` names the parameter.
    """
    members = bind_listed_maps(argument, maps, parameter.name, label)
    shape = (len(members), TENSOR_MAP_BYTES // POINTER_BYTES)
    role: Role = "in" if parameter.readonly else "inout"
    return Buffer(parameter.name, shape, "uint64", role, SingleValue(0), members=members)


def bind_listed_maps(
    argument: TensorMapSpecification | ArraySpecification,
    maps: Sequence[TensorMapSpecification],
    name: str,
    label: str,
) -> tuple[tuple[int, TensorMap], ...]:
    """Tensor maps by their offset in a variable or an array; each is named after it.

    Raises:
        UsageError: Their number is not that of the array; `label` begins the message.
    """
    count = prod(argument.shape) if isinstance(argument, ArraySpecification) else 1
    if len(maps) not in (1, count):
        raise UsageError(
            f"{label} has {count} tensor maps, got {argument.text!r} with {len(maps)}: give one "
            "for each, or one for all"
        )
    return tuple(
        (TENSOR_MAP_BYTES * number, tensor_map(maps[number % len(maps)], f"{name}.{number}"))
        for number in range(count)
    )


def tensor_map(argument: TensorMapSpecification, name: str) -> TensorMap:
    """A tensor map by its specification; `resolved_tensor_map` completes it.

    Args:
        argument: The specification.
        name: Its name, which is that of its array too.
    """
    array: Buffer | ArrayAlias
    extents = argument.shape
    if isinstance(argument.array, AliasSpecification):
        array = ArrayAlias(name, argument.array.array, "", argument.array.start)
        dtype = ""
    else:
        given = argument.array
        dtype = NUMPY_DTYPES[given.dtype]
        shape, interleave = given.shape, argument.box.interleave_bytes
        is_new = not isinstance(given.fill, NpyFile | InMemoryArray)
        if is_new and shape and not extents:
            extents = _mapped_shape(shape, dtype, interleave, f"the tensor map {name}")
            slice_shape = shape[len(extents) :]
            if argument.strides_bytes:
                unit_bytes = interleave or dtype_bytes(dtype)
                shape = (*_padded(extents, argument.strides_bytes, unit_bytes), *slice_shape)
        array = Buffer(name, shape, dtype, given.role, given.fill)
    return TensorMap(
        name,
        array,
        dtype,
        extents,
        argument.box,
        argument.strides_bytes,
        argument.conversion,
    )


def _padded(
    shape: tuple[int, ...], strides_bytes: tuple[int, ...], unit_bytes: int
) -> tuple[int, ...]:
    """The shape of an array that holds a tensor whose rows have gaps; the same without any."""
    pitches = (*strides_bytes, unit_bytes)
    last = sum((extent - 1) * pitch for extent, pitch in zip(shape, pitches, strict=False))
    elements = last // unit_bytes + 1
    if elements <= prod(shape) or len(pitches) != len(shape) or min(pitches) < 1:
        return shape
    padded = (shape[0], *(outer // inner for outer, inner in pairwise(pitches)))
    is_nested = all(outer % inner == 0 for outer, inner in pairwise(pitches))
    fits = all(wide >= extent for wide, extent in zip(padded, shape, strict=True))
    return padded if is_nested and fits else (elements,)


def with_array(item: AnyMap, pointer: Buffer | ArrayAlias, arrays: Mapping[str, Buffer]) -> AnyMap:
    """A tensor map with the type and the shape of its array, checked against the driver's rules.

    Args:
        item: The tensor map.
        pointer: Its array, or the alias of one, resolved.
        arrays: The arrays of all arguments, by name.

    Raises:
        UsageError: The driver refuses such a map, or the tensor does not fit its array.
    """
    array = arrays[pointer.array if isinstance(pointer, ArrayAlias) else pointer.name]
    label = f"the tensor map {item.name}"
    dtype = item.dtype or array.dtype
    shape = item.shape or _mapped_shape(array.shape, dtype, item.box.interleave_bytes, label)
    whole = replace(item, array=pointer, dtype=dtype, shape=shape)
    check_tensor_map(whole, array.nbytes, pointer.offset_bytes, label)
    return whole


def _mapped_shape(
    shape: tuple[int, ...], dtype: str, interleave_bytes: int, label: str
) -> tuple[int, ...]:
    """The extents of a map that are those of its array: with interleave, of slices.

    Raises:
        UsageError: The elements of the array's last dimension are no slice.
    """
    if not interleave_bytes:
        return shape
    count = interleave_bytes // dtype_bytes(dtype)
    if shape[-1] != count:
        listed = ",".join(map(str, shape))
        raise UsageError(
            f"{label}: with interleave{interleave_bytes}, the last dimension of the array is a "
            f"slice of {count} elements of {dtype}, got [{listed}]: write [...,{count}], or after "
            "@NAME the extents in slices"
        )
    return shape[:-1]
