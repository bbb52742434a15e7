"""A trace as data: what one thread of a launch touches, in the program's own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from memlab.device.array_element import Element
from memlab.kernels.launch import Dim3
from memlab.presentation import Presentable


@dataclass(frozen=True)
class ScalarArgument:
    """A scalar argument of the kernel.

    Attributes:
        name: The parameter's name in the source.
        value: What was passed.
    """

    name: str
    value: int | float


@dataclass(frozen=True)
class ArrayPart:
    """Some elements of an array that are moved or multiplied as one.

    Attributes:
        array: The array's name.
        first: The lowest position in each of its dimensions.
        last: The highest.
        count: Elements; fewer than lie between the two where they are no block.
    """

    array: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    count: int

    @classmethod
    def of(cls, elements: Iterable[TracedValue]) -> ArrayPart | None:
        """What some elements are together; None where not all are elements, and of one array."""
        places: set[tuple[int, ...]] = set()
        arrays = set()
        for each in elements:
            if not isinstance(each, Element):
                return None
            arrays.add(each.array)
            places.add(each.subscripts)
        if len(arrays) != 1:
            return None
        first, last = (tuple(map(end, zip(*places, strict=True))) for end in (min, max))
        return cls(arrays.pop(), first, last, len(places))

    @property
    def name(self) -> str:
        """Its block of the array, `N_tile[0…15][0…7]`, or `32 of M_tile[0…61]`."""
        ends = tuple(zip(self.first, self.last, strict=True))
        block = "".join(f"[{low}]" if low == high else f"[{low}…{high}]" for low, high in ends)
        whole = self.count == prod(high - low + 1 for low, high in ends)
        return f"{'' if whole else f'{self.count} of '}{self.array}{block}"

    def holds(self, element: Element) -> bool:
        """Whether an element lies in its block."""
        places = zip(self.first, element.subscripts, self.last, strict=False)
        return element.array == self.array and all(low <= at <= high for low, at, high in places)


TracedValue: TypeAlias = Element | ScalarArgument | ArrayPart | float | None
"""Where a value comes from: it was loaded or passed, it is a constant, or it was computed."""

AccessKind: TypeAlias = Literal["load", "store", "atomic"]


@dataclass(frozen=True)
class ElementAccess:
    """One element that a thread reads or writes.

    Attributes:
        line: The source line, from 1; 0 where the compiler names none.
        kind: `atomic` both reads and writes.
        element: What it touches.
        phase: See `Phase`; 0 before the first.
        source: Where the stored value, or that of an atomic operation, comes from.
        operation: Of an atomic, what it does, as PTX names it: `add`, `max`, `cas` …
    """

    line: int
    kind: AccessKind
    element: Element
    phase: int = 0
    source: TracedValue = None
    operation: str = ""

    @property
    def text(self) -> str:
        """What it does: `b[1][2] = square[2][1]`, `atomic add of 1 to bins[3]`, `read words[6]`.

        A value that was computed is left out.
        """
        return self._text(lambda each: each.name)

    @property
    def flat(self) -> str:
        """The same as a program with pointers writes it."""
        return self._text(lambda each: each.short)

    def _text(self, name: Callable[[Element], str]) -> str:
        target, known = name(self.element), self.source is not None
        source = _value_text(self.source, name)
        if self.kind == "load":
            return f"read {target}"
        if self.kind == "atomic":
            return f"atomic {self.operation}{f' of {source}' if known else ''} to {target}"
        return f"write {target}{f' = {source}' if known else ''}"


@dataclass(frozen=True)
class Operation:
    """One instruction that computes with what was loaded.

    Attributes:
        line: The source line, from 1; 0 where the compiler names none.
        opcode: PTX's name of it: `fma`, `add`, `mul` …
        operands: Where its sources come from, in PTX's order.
        phase: See `Phase`.
    """

    line: int
    opcode: str
    operands: tuple[TracedValue, ...]
    phase: int = 0

    @property
    def text(self) -> str:
        """What it does with what was loaded: `M[3][0] * N[0][1]`, `+ a[2][1]`.

        A sum that was computed before, to which it adds, is left out.
        """
        return self._text(lambda each: each.name)

    @property
    def flat(self) -> str:
        """The same as a program with pointers writes it: `M[12] * N[1]`."""
        return self._text(lambda each: each.short)

    @property
    def adds_up(self) -> bool:
        """Whether it adds to a sum that was computed before."""
        return self.opcode in _PRODUCTS and self.operands[2:] == (None,)

    def _text(self, name: Callable[[Element], str]) -> str:
        shown = [_value_text(each, name) for each in self.operands]
        if self.opcode in _PRODUCTS:
            begins = self.operands[2:] == (0.0,)  # a sum, with this product
            rest = [] if begins or self.adds_up else shown[2:]
            return " + ".join([" * ".join(shown[:2]), *rest])
        if self.opcode in MATRIX_PRODUCTS:
            return " × ".join(shown)
        sign = {"add": "+", "sub": "-", "div": "/"}.get(self.opcode)
        if sign is None or len(shown) != 2:
            return f"{self.opcode}({', '.join(shown)})"
        for running in (None, 0.0):
            if sign == "+" and running in self.operands:
                return f"+ {shown[self.operands.index(running) - 1]}"
        if sign == "-" and self.operands[0] is None:
            return f"- {shown[1]}"
        return f"{shown[0]} {sign} {shown[1]}"


_PRODUCTS = ("fma", "mad", "mul")
MATRIX_PRODUCTS = ("mma", "wmma")
"""Opcodes of what a warp does on its tensor cores: the operands are parts of arrays."""


def _value_text(value: TracedValue, name: Callable[[Element], str]) -> str:
    if isinstance(value, Element):
        return name(value)
    if isinstance(value, ScalarArgument | ArrayPart):
        return value.name
    return "…" if value is None else f"{value:g}"


@dataclass(frozen=True)
class ThreadTrace:
    """What one thread does.

    Attributes:
        thread: Its index in the block, x, y, z.
        steps: What it touches and what it computes from that, in order.
        barriers: How often it waits for its block.
    """

    thread: Dim3
    steps: tuple[ElementAccess | Operation, ...]
    barriers: int

    @property
    def accesses(self) -> tuple[ElementAccess, ...]:
        """What it touches, in order."""
        return tuple(each for each in self.steps if isinstance(each, ElementAccess))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What it computes, in order."""
        return tuple(each for each in self.steps if isinstance(each, Operation))

    def touches(self, space: str) -> tuple[ElementAccess, ...]:
        """The accesses to one state space."""
        return tuple(each for each in self.accesses if each.element.space == space)


@dataclass(frozen=True)
class Phase:
    """A round of filling shared memory and using it.

    It begins where a thread of the block stores to shared memory after any has read there, once
    between two barriers at most; all threads are then in it, whether they have a part in it or not.
    What comes before the first belongs to it.

    Attributes:
        number: From 1.
        staged: Stores to shared memory, with the source of each, and atomics there.
        used: What is computed, read without being computed with, and written elsewhere as it was
            loaded, in order.
    """

    number: int
    staged: tuple[ElementAccess, ...]
    used: tuple[ElementAccess | Operation, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What is computed."""
        return tuple(each for each in self.used if isinstance(each, Operation))


@dataclass(frozen=True)
class ArrayUse:
    """How often the elements of an array in global memory are read and written.

    Attributes:
        array: Its name.
        shape: Elements in each dimension.
        block_reads: Reads to how many elements are read so often by the block, zero left out.
        grid_reads: The same by the whole grid; None where that is too large to execute.
        block_read: Positions that the block reads.
        block_written: Positions that the block writes.
    """

    array: str
    shape: tuple[int, ...]
    block_reads: Mapping[int, int]
    grid_reads: Mapping[int, int] | None
    block_read: tuple[int, ...]
    block_written: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Trace(Presentable):
    """One thread of one block, and what the block and the grid around it do.

    Attributes:
        kernel: Its name in the catalog.
        parameters: With defaults filled in.
        device: The device that it was compiled for.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        block_index: The block that ran.
        followed: The thread that was asked for.
        threads: All threads of the block where it is small; else that one alone.
        phases: How many the block goes through; 0 where it uses no shared memory.
        arrays: The array arguments.
        shared_reuse: Bytes read from shared memory over bytes stored there; None without any.
        staged_share: Bytes stored in shared memory over bytes read from global memory: below 1
            where not all goes that way, above it where zeros fill tiles that reach over an edge;
            None where nothing is read.
    """

    kernel: str
    parameters: Mapping[str, int | str]
    device: str
    grid: Dim3
    block: Dim3
    block_index: Dim3
    followed: ThreadTrace
    threads: tuple[ThreadTrace, ...]
    phases: int
    arrays: tuple[ArrayUse, ...]
    shared_reuse: float | None
    staged_share: float | None


def thread_phases(thread: ThreadTrace, count: int) -> tuple[Phase, ...]:
    """Cut what a thread does into the phases of its block, which are so many."""
    staged: list[list[ElementAccess]] = [[] for _ in range(count)]
    used: list[list[ElementAccess | Operation]] = [[] for _ in range(count)]
    for step in without_shown_loads(thread.steps) if count else ():
        phase = max(step.phase, 1) - 1
        if isinstance(step, Operation) or step.kind == "load":
            used[phase].append(step)
        elif step.element.space == "shared":
            staged[phase].append(step)
        elif step.source is not None or step.kind == "atomic":
            used[phase].append(step)
    return tuple(
        Phase(number + 1, tuple(staged[number]), tuple(used[number])) for number in range(count)
    )


def without_shown_loads(
    steps: Sequence[ElementAccess | Operation],
) -> Iterator[ElementAccess | Operation]:
    """Leave out loads whose element shows in what is made of it."""
    used: set[TracedValue] = set()
    for step in steps:
        used.update(step.operands if isinstance(step, Operation) else (step.source,))
    parts = [each for each in used if isinstance(each, ArrayPart)]
    for step in steps:
        if (
            isinstance(step, Operation)
            or step.kind != "load"
            or (step.element not in used and not any(each.holds(step.element) for each in parts))
        ):
            yield step


def value_name(value: TracedValue) -> str:
    """A value's origin as a person reads it: an element's name, a number, or `computed`."""
    return "computed" if value is None else _value_text(value, lambda each: each.name)
