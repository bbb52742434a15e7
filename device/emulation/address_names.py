"""Names addresses as elements of a program's arrays, in the source's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from memlab.device.array_element import Element
from memlab.device.compiler.translation_unit import Architecture
from memlab.device.debug_info.symbols import layout_of, layouts, source_name
from memlab.device.debug_info.variable_layouts import MemberLayout, VariableLayout
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.checks.pointer_origin import find_pointer_origins
from memlab.device.texture_arrays import footprint_bytes
from memlab.kernels.launch import Launch, StructureType

WORD_BYTES = 4


@dataclass(frozen=True)
class ProgramArray:
    """An array in its state space, and the layout of its elements.

    Attributes:
        name: The name in the source.
        start: The address of the first byte.
        size: Bytes of the array.
        element_bytes: Bytes of one element.
        shape: Elements in each dimension, row-major.
        members: The members of an element that is a structure.
        dtype: The short name of the elements' type (`f32`); empty if it is no number or unknown.
    """

    name: str
    start: int
    size: int
    element_bytes: int
    shape: tuple[int, ...]
    members: tuple[MemberLayout, ...] = ()
    dtype: str = ""

    def element(self, space: str, index: int) -> Element:
        """The element at a row-major position; positions past the end extend the first dimension.

        A variable outside global memory with one element is named without a subscript.
        """
        scalar = self.shape == (1,) and index == 0 and space != "global"
        return Element(space, self.name, index, () if scalar else _subscripts(index, self.shape))

    def within(self, space: str, start: int, stop: int) -> Iterator[Element]:
        """The elements, or their members, from byte `start` of the array to byte `stop`."""
        while start < stop:
            index, inside = divmod(start, self.element_bytes)
            member, size, dtype = _member_at(self.members, inside, self.element_bytes, self.dtype)
            yield replace(self.element(space, index), member=member, dtype=dtype)
            start += size


class AddressNames:
    """Finds the elements at an address.

    The layout of arrays comes from a compilation with debug information, made on first use.
    """

    def __init__(
        self, launch: Launch, execution: Execution, architecture: Architecture | None = None
    ) -> None:
        """Find the address ranges of the arrays.

        Args:
            launch: The launch.
            execution: The launch in the emulator: its program and its memory.
            architecture: The compute capability to compile for. None if only the names of arrays
                are needed; every array of the program is then a row of words.
        """
        program = execution.program
        self._launch, self._architecture = launch, architecture
        dynamic = max(program.shared.values(), default=0)  # the array sized at launch comes last
        ends = {
            "shared": dynamic + launch.dynamic_shared_bytes,
            "const": len(program.const_image),
            "local": program.local_bytes,
        }
        starts = {"shared": program.shared, "const": program.const, "local": program.local}
        self._symbols: dict[str, list[tuple[str, int, int]]] = {
            space: [
                (symbol, start, program.sizes.get(symbol) or ends[space] - start)
                for symbol, start in sorted(variables.items(), key=lambda item: item[1])
            ]
            for space, variables in starts.items()
        }
        self._symbols["global"] = [
            (array.name, array.address, array.size) for array in execution.memory.allocations
        ]
        self._buffer_layouts = {
            buffer.name: VariableLayout(
                # The elements of a texture are named by their places in memory.
                buffer.shape
                if buffer.view is None
                else (footprint_bytes(buffer) // buffer.element_bytes,),
                buffer.element_bytes,
                _member_layouts(buffer.structure),
                "" if buffer.structure else _short_type_name(buffer.dtype),
            )
            for buffer in launch.buffers
        }
        self._elements: dict[tuple[str, int, int], tuple[Element, ...]] = {}
        self._arrays: dict[str, tuple[ProgramArray, ...]] = {}

    def array_ranges(self, space: str) -> list[tuple[int, int]]:
        """The address ranges (start, end) of a state space's arrays, in the order of `arrays`."""
        return [(start, start + size) for _, start, size in self._symbols.get(space, ())]

    def arrays(self, space: str) -> tuple[ProgramArray, ...]:
        """The arrays of a state space, by rising address; the layout of each is looked up once."""
        if space not in self._arrays:
            self._arrays[space] = tuple(
                _make_array(symbol, start, size, self._layout(space, symbol, size))
                for symbol, start, size in self._symbols.get(space, ())
            )
        return self._arrays[space]

    def _layout(self, space: str, symbol: str, size: int) -> VariableLayout | None:
        """The layout of a variable: from the launch, or from debug information."""
        if space == "global" and symbol in self._buffer_layouts:
            return self._buffer_layouts[symbol]
        # All local variables share one symbol, which debug information does not divide.
        return None if space == "local" else layout_of(symbol, size, self._layouts)

    @cached_property
    def _layouts(self) -> Mapping[str, tuple[VariableLayout, ...]]:
        return {} if self._architecture is None else layouts(self._launch, self._architecture)

    def knows(self, space: str) -> bool:
        """Whether a state space holds arrays of the program."""
        return space in self._symbols

    def elements(self, space: str, address: int, size: int) -> tuple[Element, ...]:
        """The elements that lie in `size` bytes from an address on."""
        key = (space, address, size)
        if key not in self._elements:
            self._elements[key] = self._find_elements(*key)
        return self._elements[key]

    def _find_elements(self, space: str, address: int, size: int) -> tuple[Element, ...]:
        # An address outside all arrays is named after the last array before it.
        arrays = self.arrays(space) or (ProgramArray(space, 0, 0, WORD_BYTES, (0,)),)
        array = next((array for array in reversed(arrays) if array.start <= address), arrays[0])
        start = address - array.start
        return tuple(array.within(space, start, start + size))


def accessed_arrays(launch: Launch, execution: Execution) -> dict[int, str]:
    """Name the array that each instruction of a program accesses, where the program shows it.

    Returns:
        The names in the source, by the instruction's index.
    """
    names, program = AddressNames(launch, execution), execution.program
    origins = find_pointer_origins(program, execution.memory, execution.grid.parameters)
    accessed = {
        index: names.arrays(space)[number].name for index, (space, number) in origins.items()
    }
    for index, step in enumerate(program.steps):
        arrays = names.arrays(step.row.space)
        # Addresses of the only array of a state space are often computed without a pointer.
        if len(arrays) == 1 and step.row.space != "global":
            accessed.setdefault(index, arrays[0].name)
    return accessed


def _member_layouts(structure: StructureType | None) -> tuple[MemberLayout, ...]:
    """The layouts of the members of an array's structures; none for numbers."""
    return tuple(
        MemberLayout(
            member.name,
            member.offset_bytes,
            VariableLayout(
                member.shape,
                member.element_bytes,
                _member_layouts(member.structure),
                _short_type_name(member.dtype),
            ),
        )
        for member in (structure.members if structure else ())
    )


def _short_type_name(dtype: str) -> str:
    """The short name of a NumPy type: `f32` for `float32`."""
    return dtype.replace("float", "f").replace("uint", "u").replace("int", "i")


def _subscripts(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    reversed_subscripts: list[int] = []
    for extent in reversed(shape[1:]):
        index, subscript = divmod(index, extent)
        reversed_subscripts.append(subscript)
    return (index, *reversed(reversed_subscripts))


def _member_at(
    members: tuple[MemberLayout, ...], offset: int, size: int, dtype: str
) -> tuple[str, int, str]:
    """The member of a structure at a byte offset.

    Args:
        members: The members of the structure; empty for a number.
        offset: The byte in the structure.
        size: Bytes of the structure.
        dtype: The short type name of a number.

    Returns:
        The member as the source writes it (`.x`, `.rows[2]`; empty if there is none), the bytes
        from the offset to its end, and its short type name.
    """
    holding = [member for member in members if 0 <= offset - member.start < member.layout.size]
    if len(holding) == 1:
        (member,) = holding
        layout = member.layout
        index, inside = divmod(offset - member.start, layout.element_bytes)
        name = f".{member.name}" if member.name else ""
        if layout.shape:
            name += "".join(f"[{subscript}]" for subscript in _subscripts(index, layout.shape))
        rest, size, dtype = _member_at(layout.members, inside, layout.element_bytes, layout.dtype)
        return name + rest, size, dtype
    if holding:  # a union: the address does not show which member is meant
        end = min(member.start + member.layout.size for member in holding)
        return "." + "|".join(member.name or "…" for member in holding), end - offset, ""
    following = min((member.start for member in members if member.start > offset), default=size)
    return "", following - offset, dtype


def _make_array(symbol: str, start: int, size: int, layout: VariableLayout | None) -> ProgramArray:
    """An array with a known layout; without one, a row of words."""
    layout = layout or VariableLayout((-(-size // WORD_BYTES),), WORD_BYTES)
    name = source_name(symbol)
    division = (layout.element_bytes, layout.shape, layout.members, layout.dtype)
    return ProgramArray(name, start, size, *division)
