"""The driver's functions that encode tensor maps, and how host code finds them.

Source: CUDA driver API, "Tensor Map Object Management" and "Driver Entry Point Access".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import number_value
from memlab.kernels.host_code.machine import allocation_of, formula_of
from memlab.kernels.host_code.places import element_of, target
from memlab.kernels.host_code.values import Address, EncodedMap, FunctionName, Text, Unresolved
from memlab.kernels.tensor_maps import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from memlab.kernels.host_code.machine import Machine
    from memlab.kernels.host_code.values import Value

_ENUMERATIONS = {
    "DATA_TYPE": (
        *("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32"),
        *("FLOAT64", "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"),
    ),
    "INTERLEAVE": ("NONE", "16B", "32B"),
    "SWIZZLE": ("NONE", "32B", "64B", "128B"),
    "L2_PROMOTION": ("NONE", "L2_64B", "L2_128B", "L2_256B"),
    "FLOAT_OOB_FILL": ("NONE", "NAN_REQUEST_ZERO_FMA"),
}
ENUMERATORS = {
    f"CU_TENSOR_MAP_{kind}_{word}": number
    for kind, words in _ENUMERATIONS.items()
    for number, word in enumerate(words)
}
"""The numbers of the driver's names for what a tensor map is like (`cuda.h`)."""

_TILED, _IM2COL = "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"
_REPLACE = "cuTensorMapReplaceAddress"
FUNCTIONS = (_TILED, _IM2COL, _REPLACE)
"""The functions that make and change tensor maps."""


def encode_tiled(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cuTensorMapEncodeTiled(&map, type, rank, address, extents, strides, box, steps, ...)`."""
    values = _values(machine, arguments)
    rank = _rank(values)
    if len(values) == 12 and rank:
        extents, strides, box, steps = _arrays(machine, values[4:8], (rank, rank - 1, rank, rank))
        made = EncodedMap(values[3], values[1], extents, strides, box, steps, tuple(values[8:12]))
        _store(machine, values[0], made)
    return number_value(0)


def encode_im2col(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cuTensorMapEncodeIm2col(&map, type, rank, address, extents, strides, lower, upper, ...)`."""
    values = _values(machine, arguments)
    rank = _rank(values)
    if len(values) == 15 and rank > 2:
        counts = rank, rank - 1, rank - 2, rank - 2, rank
        extents, strides, lower, upper, steps = _arrays(machine, (*values[4:8], values[10]), counts)
        box, options = (values[8], values[9]), tuple(values[11:15])
        made = EncodedMap(
            values[3], values[1], extents, strides, box, steps, options, (lower, upper)
        )
        _store(machine, values[0], made)
    return number_value(0)


def replace_address(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cuTensorMapReplaceAddress(&map, address)`."""
    values = _values(machine, arguments)
    cell = target(machine, values[0]) if len(values) == 2 else None
    if cell is not None and isinstance(cell.value, EncodedMap):
        machine.write(cell, replace(cell.value, address=values[1]))
    return number_value(0)


def find_entry_point(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaGetDriverEntryPoint("name", &function, ...)`, and `dlsym(library, "name")`."""
    values = _values(machine, arguments)
    names = (each.text.strip('"') for each in values if isinstance(each, Text))
    found = next((FunctionName(name) for name in names if name in FUNCTIONS), None)
    if found is None:
        return Unresolved("function")
    if values and isinstance(values[0], Text) and len(values) > 1:
        _store(machine, values[1], found)
        return number_value(0)
    return found


def maps_at(source: Value) -> tuple[EncodedMap, ...]:
    """The tensor maps that a pointer points to; empty where there are others."""
    if isinstance(source, Address):
        return (source.cell.value,) if isinstance(source.cell.value, EncodedMap) else ()
    allocation = allocation_of(source)
    cells = [] if allocation is None else sorted(allocation.elements.items())
    maps = tuple(cell.value for _, cell in cells if isinstance(cell.value, EncodedMap))
    return maps if len(maps) == len(cells) else ()


def copy_maps(machine: Machine, to: Value, source: Value) -> None:
    """Copy the tensor maps that a pointer points to, as `cudaMemcpy` does."""
    if isinstance(source, Address):
        if isinstance(source.cell.value, EncodedMap):
            _store(machine, to, source.cell.value)
        return
    allocation = allocation_of(source)
    cells = [] if allocation is None else sorted(allocation.elements.items())
    for index, cell in cells:
        held = element_of(machine, to, index) if isinstance(cell.value, EncodedMap) else None
        if held is not None:
            machine.write(held, cell.value)


def _values(machine: Machine, arguments: Sequence[Node]) -> list[Value]:
    return [machine.evaluate(machine, node) for node in arguments]


def _store(machine: Machine, where: Value, value: Value) -> None:
    cell = target(machine, where)
    if cell is not None:
        machine.write(cell, value)


def _rank(values: Sequence[Value]) -> int:
    """The number of dimensions; 0 where it is not known."""
    formula = formula_of(values[2]) if len(values) > 2 else None
    rank = None if formula is None else formula.whole
    return rank if rank is not None and 0 < rank <= MAX_RANK else 0


def _arrays(
    machine: Machine, values: Sequence[Value], counts: Sequence[int]
) -> list[tuple[Value, ...]]:
    """The elements of arrays, so many of each."""
    return [_elements(machine, value, count) for value, count in zip(values, counts, strict=True)]


def _elements(machine: Machine, value: Value, count: int) -> tuple[Value, ...]:
    """So many elements of an array, or the variable that a pointer points to."""
    cells = [
        target(machine, value) if index == 0 else element_of(machine, value, index)
        for index in range(count)
    ]
    unknown = Unresolved("value")
    return tuple(unknown if cell is None else machine.settled(cell.value) for cell in cells)
