"""How a source's variables are divided into elements, from the debugger's information."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from memlab.device.debug_info import dwarf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlab.device.debug_info.dwarf import Die


@dataclass(frozen=True)
class VariableLayout:
    """How a variable is divided into elements.

    Attributes:
        shape: Elements in each dimension, row-major; the first is 0 where it is sized at launch.
            Empty for a member that is no array.
        element_bytes: Bytes of one element.
        members: What an element holds where it is a structure. Neither this nor the type is
            compared: namesakes are told apart by their sizes.
        dtype: The short name of the elements' type, where it is a number's.
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
        """The layout with as many rows as so many bytes hold; None where it has other bytes."""
        row = prod(self.shape[1:]) * self.element_bytes
        if not row or size % row or self.shape[0] not in (0, size // row):
            return None
        return replace(self, shape=(size // row, *self.shape[1:]))


@dataclass(frozen=True)
class MemberLayout:
    """A member of a structure.

    Attributes:
        name: Its name; empty for a base class, or a structure or union that has none.
        start: Its first byte in the structure.
        layout: How it is divided itself.
    """

    name: str
    start: int
    layout: VariableLayout


def read_layouts(cubin: bytes) -> dict[str, tuple[VariableLayout, ...]]:
    """Read how variables are divided into elements; what is no array is one of one element.

    Args:
        cubin: Machine code with debug information (`-G`).

    Returns:
        By symbol; of a function's variables, by that which a `static` one would have (Itanium C++
        ABI, section 5.1.6), the layouts of all that share a name there.

    Raises:
        UsageError: Types or blocks lie too deep in one another.
    """
    found = defaultdict(list)
    known: dict[int, tuple[MemberLayout, ...]] = {}
    with dwarf.recursion_guard():
        for die in dwarf.declarations(cubin):
            if die.tag == "DW_TAG_variable":
                found[dwarf.linkage_name(die)].append(dwarf.referenced_type(die))
            elif die.tag == "DW_TAG_subprogram":
                function = dwarf.linkage_name(die)
                scope = function[1:] if function.startswith("_Z") else f"Z{len(function)}{function}"
                for variable in _local_variables(die):
                    name = dwarf.attribute_text(variable, "name")
                    found[f"_Z{scope}E{len(name)}{name}"].append(dwarf.referenced_type(variable))
        return {
            symbol: tuple(
                replace(layout, shape=layout.shape or (1,))
                for kind in kinds
                if (layout := _type_layout(kind, known)).element_bytes
            )
            for symbol, kinds in found.items()
        }


def _local_variables(function: Die) -> Iterator[Die]:
    """A function's variables, in its blocks too."""
    waiting = [function]
    while waiting:
        for die in waiting.pop().iter_children():
            if die.tag == "DW_TAG_variable":
                yield die
            elif die.tag == "DW_TAG_lexical_block":
                waiting.append(die)


def _type_layout(kind: Die, known: dict[int, tuple[MemberLayout, ...]]) -> VariableLayout:
    """The layout of a type; `known` are the members of structures, each of which is read once."""
    element, _ = dwarf.array_element_type(kind)
    if dwarf.is_structure(element) and element.offset not in known:
        known[element.offset] = tuple(
            MemberLayout(
                dwarf.attribute_text(child, "name"),
                dwarf.member_offset(child),
                _type_layout(dwarf.referenced_type(child), known),
            )
            for child in dwarf.data_members(element)
        )
    return VariableLayout(
        dwarf.array_shape(kind),
        dwarf.type_bytes(element),
        known[element.offset] if dwarf.is_structure(element) else (),
        dwarf.dtype_name(element),
    )
