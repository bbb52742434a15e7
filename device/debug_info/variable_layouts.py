"""Reads how a source's variables are divided into elements, from debug information."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from memlab.device.debug_info import dwarf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memlab.device.debug_info.dwarf import Die


@dataclass(frozen=True)
class VariableLayout:
    """The division of a variable into elements.

    Attributes:
        shape: Elements in each dimension, row-major; the first is 0 for an array sized at launch.
            Empty for a member that is not an array.
        element_bytes: Bytes of one element.
        members: The members of an element that is a structure. Members and type are not compared:
            variables of the same name are distinguished by their sizes.
        dtype: The short name of the elements' type, if it is a number.
    """

    shape: tuple[int, ...]
    element_bytes: int
    members: tuple[MemberLayout, ...] = field(default=(), compare=False, repr=False)
    dtype: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.element_bytes

    def resized_to(self, size: int) -> VariableLayout | None:
        """The layout with as many rows as fit `size` bytes; None if it cannot fill them."""
        row = prod(self.shape[1:]) * self.element_bytes
        if not row or size % row or self.shape[0] not in (0, size // row):
            return None
        return replace(self, shape=(size // row, *self.shape[1:]))


@dataclass(frozen=True)
class MemberLayout:
    """A member of a structure.

    Attributes:
        name: The name; empty for a base class, or an unnamed structure or union.
        start: The member's first byte in the structure.
        layout: The layout of the member.
    """

    name: str
    start: int
    layout: VariableLayout


@lru_cache(maxsize=32)
def read_layouts(cubin: bytes) -> Mapping[str, tuple[VariableLayout, ...]]:
    """Read the layouts of variables; a variable that is not an array has one element.

    Args:
        cubin: Machine code with debug information (`-G`).

    Returns:
        The layouts by symbol. A function's variable has the symbol that a `static` variable would
        have (Itanium C++ ABI, section 5.1.6), with the layouts of all variables of that name.

    Raises:
        UsageError: Types or blocks are nested too deeply.
    """
    types_by_symbol = defaultdict(list)
    known: dict[int, tuple[MemberLayout, ...]] = {}
    with dwarf.recursion_guard():
        for die in dwarf.declarations(cubin):
            if die.tag == "DW_TAG_variable":
                types_by_symbol[dwarf.linkage_name(die)].append(dwarf.referenced_type(die))
            elif die.tag == "DW_TAG_subprogram":
                function = dwarf.linkage_name(die)
                scope = function[1:] if function.startswith("_Z") else f"Z{len(function)}{function}"
                for variable in _local_variables(die):
                    name = dwarf.attribute_text(variable, "name")
                    symbol = f"_Z{scope}E{len(name)}{name}"
                    types_by_symbol[symbol].append(dwarf.referenced_type(variable))
        return {
            symbol: tuple(
                replace(layout, shape=layout.shape or (1,))
                for variable_type in types
                if (layout := _type_layout(variable_type, known)).element_bytes
            )
            for symbol, types in types_by_symbol.items()
        }


def _local_variables(function: Die) -> Iterator[Die]:
    """The variables of a function and of its blocks."""
    waiting = [function]
    while waiting:
        for die in waiting.pop().iter_children():
            if die.tag == "DW_TAG_variable":
                yield die
            elif die.tag == "DW_TAG_lexical_block":
                waiting.append(die)


def _type_layout(variable_type: Die, known: dict[int, tuple[MemberLayout, ...]]) -> VariableLayout:
    """The layout of a type; `known` caches the members of structures."""
    element, _ = dwarf.array_element_type(variable_type)
    if dwarf.is_structure(element) and element.offset not in known:
        known[element.offset] = tuple(
            MemberLayout(
                dwarf.member_name(child),
                dwarf.member_offset(child),
                _type_layout(dwarf.referenced_type(child), known),
            )
            for child in dwarf.data_members(element)
        )
    return VariableLayout(
        dwarf.array_shape(variable_type),
        dwarf.type_bytes(element),
        known[element.offset] if dwarf.is_structure(element) else (),
        dwarf.dtype_name(element),
    )
