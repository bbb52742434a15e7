"""The records of a trace: one thread's accesses and operations, and the reads of its block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from memlab.device.array_element import Element, of_rank
from memlab.kernels.launch import NO_CLUSTER, Dim3, Scalar
from memlab.presentation import Presentable


@dataclass(frozen=True)
class ArrayPart:
    """Several elements of one array that are moved or multiplied together.

    Attributes:
        array: The array's name.
        first: The lowest subscript in each dimension.
        last: The highest subscript in each dimension.
        count: The number of elements; less than a whole block from `first` to `last` has where
            some elements in between are missing.
        rank: As `Element.rank`.
    """

    array: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    count: int
    rank: int | None = None

    @classmethod
    def of(cls, values: Collection[TracedValue]) -> ArrayPart | None:
        """Combine values; None unless all of them are elements of the same array."""
        elements = [value for value in values if isinstance(value, Element)]
        places = {element.subscripts for element in elements}
        arrays = {(element.array, element.rank) for element in elements}
        if len(arrays) != 1 or len(elements) < len(values):
            return None
        first, last = (tuple(map(end, zip(*places, strict=True))) for end in (min, max))
        ((array, rank),) = arrays
        return cls(array, first, last, len(places), rank)

    @property
    def name(self) -> str:
        """Its block of the array, `N_tile[0…15][0…7]`, or `32 of M_tile[0…61]`."""
        ends = tuple(zip(self.first, self.last, strict=True))
        block = "".join(f"[{low}]" if low == high else f"[{low}…{high}]" for low, high in ends)
        whole = self.count == prod(high - low + 1 for low, high in ends)
        part = "" if whole else f"{self.count} of "
        return f"{part}{self.array}{block}{of_rank(self.rank)}"

    def holds(self, element: Element) -> bool:
        """Whether an element lies in the block."""
        places = zip(self.first, element.subscripts, self.last, strict=False)
        same = (element.array, element.rank) == (self.array, self.rank)
        return same and all(low <= at <= high for low, at, high in places)


TracedValue: TypeAlias = Element | Scalar | ArrayPart | float | None
"""The origin of a value: an element, a scalar argument, a constant; None for a computed value."""


def value_name(value: TracedValue, *, flat: bool = False, computed: str = "computed") -> str:
    """A value's origin in words.

    Args:
        value: The value.
        flat: Whether elements of global memory get one index, `M[12]`, not all their subscripts.
        computed: The text for a computed value.
    """
    if isinstance(value, Element):
        return value.short if flat else value.name
    if isinstance(value, Scalar | ArrayPart):
        return value.name
    return computed if value is None else f"{value:g}"


class _Described:
    """A step with two texts."""

    @property
    def text(self) -> str:
        """The step in words, with subscripts: `M[3][0] * N[0][1]`, `write b[1][2] = s[2][1]`.

        A computed value that is stored, and a computed sum that is added to, are left out.
        """
        return self._describe(flat=False)

    @property
    def flat(self) -> str:
        """The step in words, with one index in global memory: `M[12] * N[1]`, `read a[3]`."""
        return self._describe(flat=True)

    def _describe(self, *, flat: bool) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class ElementAccess(_Described):
    """A thread's access to one element.

    Attributes:
        line: The source line, from 1; 0 where the compiler gives none.
        kind: `load`, `store`, or `atomic`, which both reads and writes.
        element: The element.
        phase: The number of its `Phase`; 0 before the thread first uses shared memory.
        source: The origin of the stored value, or of an atomic's operand.
        operation: An atomic's operation as PTX names it: `add`, `max`, `cas`; else empty.
    """

    line: int
    kind: Literal["load", "store", "atomic"]
    element: Element
    phase: int = 0
    source: TracedValue = None
    operation: str = ""

    def _describe(self, *, flat: bool) -> str:
        target, source = value_name(self.element, flat=flat), value_name(self.source, flat=flat)
        known = self.source is not None
        if self.kind == "load":
            return f"read {target}"
        if self.kind == "atomic":
            return f"atomic {self.operation}{f' of {source}' if known else ''} to {target}"
        return f"write {target}{f' = {source}' if known else ''}"


_PRODUCTS = ("fma", "mad", "mul")
_SIGNS = {"add": "+", "sub": "-", "div": "/"}
MATRIX_PRODUCTS = ("mma", "wmma")
"""Opcodes of a warp's operations on its tensor cores; their operands are parts of arrays."""


@dataclass(frozen=True)
class Operation(_Described):
    """One arithmetic instruction on loaded values.

    Attributes:
        line: The source line, from 1; 0 where the compiler gives none.
        opcode: PTX's name of the instruction without its types: `fma`, `add`, `mul`.
        operands: The origins of its sources, in PTX's order.
        phase: The number of its `Phase`; 0 before the thread first uses shared memory.
    """

    line: int
    opcode: str
    operands: tuple[TracedValue, ...]
    phase: int = 0

    @property
    def adds_up(self) -> bool:
        """Whether it adds a product to a computed sum."""
        return self.opcode in _PRODUCTS and self.operands[2:] == (None,)

    def _describe(self, *, flat: bool) -> str:
        operands = self.operands
        names = [value_name(operand, flat=flat, computed="…") for operand in operands]
        if self.opcode in _PRODUCTS:
            addend = names[2:] if operands[2:] not in ((None,), (0.0,)) else []
            return " + ".join([" * ".join(names[:2]), *addend])
        if self.opcode in MATRIX_PRODUCTS:
            return " × ".join(names)
        sign = _SIGNS.get(self.opcode)
        if sign is None or len(names) != 2:
            return f"{self.opcode}({', '.join(names)})"
        if sign == "+" and operands[1] in (None, 0.0):
            return f"+ {names[0]}"
        if (sign == "+" and operands[0] in (None, 0.0)) or (sign == "-" and operands[0] is None):
            return f"{sign} {names[1]}"
        return f"{names[0]} {sign} {names[1]}"


Step: TypeAlias = ElementAccess | Operation


@dataclass(frozen=True)
class ThreadTrace:
    """The steps of one thread.

    Attributes:
        thread: The thread's index in the block, x, y, z.
        steps: Its accesses and operations, in order.
        barriers: How often it waits at a barrier of its block.
    """

    thread: Dim3
    steps: tuple[Step, ...]
    barriers: int

    @property
    def accesses(self) -> tuple[ElementAccess, ...]:
        """Its accesses, in order."""
        return tuple(step for step in self.steps if isinstance(step, ElementAccess))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Its operations, in order."""
        return tuple(step for step in self.steps if isinstance(step, Operation))

    def touches(self, space: str) -> tuple[ElementAccess, ...]:
        """Its accesses to one state space, in order."""
        return tuple(access for access in self.accesses if access.element.space == space)


@dataclass(frozen=True)
class Phase:
    """A thread's part in one phase of its block: shared memory is filled, then used.

    A phase begins where any thread of the block stores to shared memory after any thread has read
    it, at most once between two barriers. All threads of the block share it. Steps before the
    first phase count with it.

    Attributes:
        number: The phase's number, from 1.
        staged: Stores to shared memory and atomics in it, in order.
        used: Operations, reads without an operation, and copies to global memory, in order.
    """

    number: int
    staged: tuple[ElementAccess, ...]
    used: tuple[Step, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations, in order."""
        return tuple(step for step in self.used if isinstance(step, Operation))


@dataclass(frozen=True)
class ArrayUse:
    """How often the elements of an array in global memory are read and written.

    Attributes:
        array: The array's name.
        shape: Elements in each dimension.
        block_reads: The number of elements by how often the block reads them, from 1 time on;
            where blocks form clusters, all blocks of the cluster, here and below.
        grid_reads: The same for the whole grid; None where the grid is too large to execute.
        block_read: Row-major positions of the elements that the block reads.
        block_written: Row-major positions of the elements that the block writes.
    """

    array: str
    shape: tuple[int, ...]
    block_reads: Mapping[int, int]
    grid_reads: Mapping[int, int] | None
    block_read: tuple[int, ...]
    block_written: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Trace(Presentable):
    """One thread of one block, with the block's and the grid's use of memory.

    Attributes:
        kernel: The kernel's name.
        parameters: The kernel's parameters, defaults included.
        device: The device that the kernel was compiled for.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        block_index: The index of the followed block in the grid, x, y, z.
        followed: The thread that was asked for.
        threads: All threads of the block where it is small; else the followed thread.
        phases: The number of phases of the block; 0 where it uses no shared memory.
        arrays: The array arguments, in the kernel's order.
        shared_reuse: Bytes read from shared memory per byte stored there; None without stores.
        staged_share: Bytes stored in shared memory per byte read from global memory: below 1
            where some reads bypass shared memory, above 1 where a tile beyond an edge is filled
            with zeros; None without reads.
        cluster: Blocks of a cluster in x, y, z.
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
    cluster: Dim3 = NO_CLUSTER

    @property
    def rank(self) -> int:
        """The rank of the followed block in its cluster: x fastest."""
        x, y, z = (at % size for at, size in zip(self.block_index, self.cluster, strict=True))
        return x + self.cluster[0] * (y + self.cluster[1] * z)


def thread_phases(thread: ThreadTrace, count: int) -> tuple[Phase, ...]:
    """Divide a thread's steps into the phases of its block.

    Args:
        thread: The thread.
        count: The number of the block's phases.
    """
    staged: defaultdict[int, list[ElementAccess]] = defaultdict(list)
    used: defaultdict[int, list[Step]] = defaultdict(list)
    for step in without_shown_loads(thread.steps):
        number = max(step.phase, 1)
        if isinstance(step, Operation) or step.kind == "load":
            used[number].append(step)
        elif step.element.space == "shared":
            staged[number].append(step)
        elif step.source is not None or step.kind == "atomic":
            used[number].append(step)
    return tuple(
        Phase(number, tuple(staged[number]), tuple(used[number])) for number in range(1, count + 1)
    )


def without_shown_loads(steps: Sequence[Step]) -> Iterator[Step]:
    """Leave out loads of elements that another step names."""
    named: set[TracedValue] = set()
    for step in steps:
        named.update(step.operands if isinstance(step, Operation) else (step.source,))
    parts = [value for value in named if isinstance(value, ArrayPart)]
    for step in steps:
        load = step if isinstance(step, ElementAccess) and step.kind == "load" else None
        if load is None or not (
            load.element in named or any(part.holds(load.element) for part in parts)
        ):
            yield step
