"""Tensor maps that host code encodes, in the words of launch options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memlab.kernels.host_code.formulas import Formula, number
from memlab.kernels.host_code.machine import formula_of, safe
from memlab.kernels.host_code.values import EncodedMap, Value
from memlab.kernels.launch import dtype_bytes
from memlab.kernels.tensor_maps import CONVERSIONS, DTYPES, INTERLEAVES, PROMOTIONS, SWIZZLES
from memlab.kernels.user.arguments.specifications import NUMPY_DTYPES

_UNSIGNED = {0: "u8", 1: "u16"}  # whose numbers stand for several types
_NAMED = {
    **{DTYPES[name]: (short, "") for short, name in NUMPY_DTYPES.items()},
    **{kind: (short, "") for kind, short in _UNSIGNED.items()},
    **{kind: ("f32", word) for word, kind in CONVERSIONS.items()},
}
"""The element type and the conversion, by the number of a `CUtensorMapDataType`."""

_WORDS = (
    ("interleave", tuple(map(str, INTERLEAVES))),
    ("swizzle", tuple(map(str, SWIZZLES))),
    ("promote", tuple(map(str, PROMOTIONS))),
    ("", ("0", "nan")),
)
"""The words of the options, by their numbers in CUDA."""


class UntoldMap(Exception):
    """Says what the host code does not tell of a tensor map."""


@dataclass(frozen=True)
class MapText:
    """A tensor map in words.

    Attributes:
        dtype: The type of an element, in memlab's short names.
        extents: The extents of the tensor, the slowest dimension first.
        array_extents: Those of an array that holds nothing else; with interleave, the elements of a
            slice are its last dimension.
        options: What follows them, such as `:box[128,64]:swizzle128`.
        count: The number of its elements; None if there is no formula.
    """

    dtype: str
    extents: str
    array_extents: str
    options: str
    count: Formula | None


def write_map(value: EncodedMap, written: Callable[[Value], str | None]) -> MapText:
    """Write a tensor map in words.

    Args:
        value: The map.
        written: Writes a number; None where it is not known.

    Raises:
        UntoldMap: The host code does not tell all of it.
    """

    def listed(what: str, values: Sequence[Value]) -> str:
        texts = [written(each) for each in reversed(values)]
        if None in texts:
            raise UntoldMap(f"whose {what} the host code does not tell")
        return f"[{','.join(filter(None, texts))}]"

    kind = _whole(value.type)
    dtype, conversion = ("", "") if kind is None else _NAMED.get(kind, ("", ""))
    if not dtype:
        raise UntoldMap("whose element type the host code does not tell")
    extents = listed("extents", value.extents)
    options = f":box{listed('box', value.box)}"
    element_bytes = dtype_bytes(NUMPY_DTYPES[dtype])
    interleave = INTERLEAVES[_place(value.options[0], _WORDS[0])]
    slice_elements = interleave // element_bytes
    if not _is_dense(value, interleave or element_bytes):
        options += f":strides{listed('strides', value.strides)}"
    if any(_whole(step) != 1 for step in value.steps):
        options += f":step{listed('element strides', value.steps)}"
    for word, corner in zip(("lower", "upper"), value.corners or (), strict=False):
        options += f":{word}{listed('corners', corner)}"
    for words, given in zip(_WORDS, value.options, strict=True):
        place = _place(given, words)
        options += f":{words[0]}{words[1][place]}" if place else ""
    options += f":{conversion}" if conversion else ""
    array_extents, count = extents, _product(value.extents)
    if slice_elements:
        array_extents = f"{extents[:-1]},{slice_elements}]"
        count = None if count is None else count * number(slice_elements)
    return MapText(dtype, extents, array_extents, options, count)


def _place(given: Value, words: tuple[str, tuple[str, ...]]) -> int:
    """The number of an option in CUDA.

    Raises:
        UntoldMap: It is not known.
    """
    word, names = words
    place = _whole(given)
    if place is None or not 0 <= place < len(names):
        raise UntoldMap(f"whose {word or 'fill'} the host code does not tell")
    return place


def _whole(value: Value) -> int | None:
    formula = formula_of(value)
    return None if formula is None else formula.whole


def _product(values: Sequence[Value]) -> Formula | None:
    product: Formula | None = number(1)
    for value in values:
        formula, before = formula_of(value), product
        if formula is None or before is None:
            return None
        product = safe(lambda: before * formula)  # noqa: B023 - called at once
    return product


def _is_dense(value: EncodedMap, unit_bytes: int) -> bool:
    """Whether nothing lies between the elements of a tensor, or the slices."""
    for dimension, stride in enumerate(value.strides, 1):
        elements = _product(value.extents[:dimension])
        dense = None if elements is None else elements * number(unit_bytes)
        if dense is None or formula_of(stride) != dense:
            return False
    return True
