"""Addresses as elements of a program's arrays, in the source's own names."""

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
from memlab.kernels.launch import Launch

WORD_BYTES = 4


@dataclass(frozen=True)
class ProgramArray:
    """Where an array lies in its state space, and how it is subscripted.

    Attributes:
        name: Its name in the source.
        start: Address of its first byte.
        size: Bytes.
        element_bytes: Bytes of one element.
        shape: Elements in each dimension, row-major.
        members: What an element holds, where it is a structure.
        dtype: The short name of the elements' type, where it is a number's and known.
    """

    name: str
    start: int
    size: int
    element_bytes: int
    shape: tuple[int, ...]
    members: tuple[MemberLayout, ...] = ()
    dtype: str = ""

    def element(self, space: str, index: int) -> Element:
        """The element at a row-major position; one that is outside continues the first row.

        What has one element is a variable: it is named without a subscript.
        """
        alone = self.shape == (1,) and index == 0 and space != "global"
        return Element(space, self.name, index, () if alone else _subscripts(index, self.shape))

    def within(self, space: str, start: int, stop: int) -> Iterator[Element]:
        """The elements, or their members, that lie from one byte of the array to another."""
        while start < stop:
            index, inside = divmod(start, self.element_bytes)
            member, size, dtype = _member_at(self.members, inside, self.element_bytes, self.dtype)
            yield replace(self.element(space, index), member=member, dtype=dtype)
            start += size


class AddressNames:
    """Finds the element that an address belongs to.

    How arrays are divided costs a compilation, which is made when the first is asked for.
    """

    def __init__(
        self, launch: Launch, execution: Execution, architecture: Architecture | None = None
    ) -> None:
        """Find out where arrays lie.

        Args:
            launch: What is executed.
            execution: Its program and its memory.
            architecture: The compute capability to compile for; None where nothing but names is
                wanted, and every array of the program may be a row of words.
        """
        program = execution.program
        self._launch, self._architecture = launch, architecture
        dynamic = max(program.shared.values(), default=0)  # an array sized at launch is the last
        ends = {
            "shared": dynamic + launch.dynamic_shared_bytes,
            "const": len(program.const_image),
            "local": program.local_bytes,
        }
        starts = {"shared": program.shared, "const": program.const, "local": program.local}
        self._places: dict[str, list[tuple[str, int, int]]] = {
            space: [
                (symbol, start, program.sizes.get(symbol) or ends[space] - start)
                for symbol, start in sorted(variables.items(), key=lambda each: each[1])
            ]
            for space, variables in starts.items()
        }
        self._places["global"] = [
            (each.name, each.address, each.size) for each in execution.memory.allocations
        ]
        self._given = {
            each.name: VariableLayout(
                each.shape, each.element_bytes, dtype=_short_type_name(each.dtype)
            )
            for each in launch.buffers
        }
        self._known: dict[tuple[str, int, int], tuple[Element, ...]] = {}
        self._arrays: dict[str, tuple[ProgramArray, ...]] = {}

    def array_ranges(self, space: str) -> list[tuple[int, int]]:
        """Where the arrays of a state space begin and end, in the order of `arrays`."""
        return [(start, start + size) for _, start, size in self._places.get(space, ())]

    def arrays(self, space: str) -> tuple[ProgramArray, ...]:
        """The arrays of a state space, by rising address."""
        if space not in self._arrays:
            self._arrays[space] = tuple(
                _make_array(symbol, start, size, self._layout(space, symbol, size))
                for symbol, start, size in self._places.get(space, ())
            )
        return self._arrays[space]

    def _layout(self, space: str, symbol: str, size: int) -> VariableLayout | None:
        """How a variable is divided: as the launch says, or the compiler."""
        if space == "global" and symbol in self._given:
            return self._given[symbol]
        # What is local lies in one place, of which no debugger is told what is where.
        return None if space == "local" else layout_of(symbol, size, self._layouts)

    @cached_property
    def _layouts(self) -> Mapping[str, tuple[VariableLayout, ...]]:
        return {} if self._architecture is None else layouts(self._launch, self._architecture)

    def knows(self, space: str) -> bool:
        """Whether a state space holds arrays of the program."""
        return space in self._places

    def elements(self, space: str, address: int, size: int) -> tuple[Element, ...]:
        """Name what lies in `size` bytes from an address on."""
        key = (space, address, size)
        if key not in self._known:
            self._known[key] = self._find_elements(*key)
        return self._known[key]

    def _find_elements(self, space: str, address: int, size: int) -> tuple[Element, ...]:
        # What lies outside all arrays is named after the last one before it.
        arrays = self.arrays(space) or (ProgramArray(space, 0, 0, WORD_BYTES, (0,)),)
        array = next((each for each in reversed(arrays) if each.start <= address), arrays[0])
        start = address - array.start
        return tuple(array.within(space, start, start + size))


def accessed_arrays(launch: Launch, execution: Execution) -> dict[int, str]:
    """Name the array that each instruction of a program accesses, where the program tells it.

    Returns:
        Names in the source by the instruction's index.
    """
    names, program = AddressNames(launch, execution), execution.program
    meant = find_pointer_origins(program, execution.memory, execution.grid.parameters)
    found = {index: names.arrays(space)[number].name for index, (space, number) in meant.items()}
    for index, step in enumerate(program.steps):
        alone = names.arrays(step.row.space)
        if len(alone) == 1 and step.row.space != "global":  # addresses of it are often computed
            found.setdefault(index, alone[0].name)
    return found


def _short_type_name(dtype: str) -> str:
    """The short name of a type by NumPy's: `f32` for `float32`."""
    return dtype.replace("float", "f").replace("uint", "u").replace("int", "i")


def _subscripts(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for extent in reversed(shape[1:]):
        index, inner = divmod(index, extent)
        found.append(inner)
    return (index, *reversed(found))


def _member_at(
    members: tuple[MemberLayout, ...], at: int, size: int, dtype: str
) -> tuple[str, int, str]:
    """What a structure of `size` bytes has at a byte, as it is written: `.x`, `.rows[2]`.

    Returns:
        Its name, empty where there is none, the bytes from there to its end, and its type, which
        is `dtype` where it is no structure.
    """
    there = [each for each in members if 0 <= at - each.start < each.layout.size]
    if len(there) == 1:
        (member,) = there
        layout = member.layout
        index, inside = divmod(at - member.start, layout.element_bytes)
        name = f".{member.name}" if member.name else ""
        if layout.shape:
            name += "".join(f"[{place}]" for place in _subscripts(index, layout.shape))
        rest, size, dtype = _member_at(layout.members, inside, layout.element_bytes, layout.dtype)
        return name + rest, size, dtype
    if there:  # a union, of which the address does not say which member is meant
        end = min(each.start + each.layout.size for each in there)
        return "." + "|".join(each.name or "…" for each in there), end - at, ""
    following = min((each.start for each in members if each.start > at), default=size)
    return "", following - at, dtype


def _make_array(symbol: str, start: int, size: int, layout: VariableLayout | None) -> ProgramArray:
    """An array by its place; where it is not known how it is divided, a row of words."""
    layout = layout or VariableLayout((-(-size // WORD_BYTES),), WORD_BYTES)
    name = source_name(symbol)
    how = (layout.element_bytes, layout.shape, layout.members, layout.dtype)
    return ProgramArray(name, start, size, *how)
