"""A trace as data: what one thread of a launch touches, in the program's own names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from memlab.kernels.launch import Dim3


@dataclass(frozen=True)
class Element:
    """One element of an array.

    Attributes:
        space: The state space that the array lies in: `global`, `shared`, `const` or `local`.
        array: Its name in the source.
        index: Row-major position in the array.
        subscripts: The position in each of its dimensions.
    """

    space: str
    array: str
    index: int
    subscripts: tuple[int, ...]

    @property
    def name(self) -> str:
        """As a program with the array's dimensions writes it: `M[3][0]`."""
        return self.array + "".join(f"[{each}]" for each in self.subscripts)

    @property
    def flat(self) -> str:
        """As a program with a pointer writes it: `M[12]`."""
        return f"{self.array}[{self.index}]"

    @property
    def label(self) -> str:
        """Both where they differ: `M[12] = M[3][0]`; shared arrays have dimensions anyway."""
        both = self.space == "global" and len(self.subscripts) > 1
        return f"{self.flat} = {self.name}" if both else self.name


Value: TypeAlias = Element | float | None
"""Where a value comes from: it was loaded, it is a constant, or it was computed."""

Kind: TypeAlias = Literal["load", "store", "atomic"]


@dataclass(frozen=True)
class Access:
    """One element that a thread reads or writes.

    Attributes:
        line: The source line, from 1; 0 where the compiler names none.
        kind: `atomic` both reads and writes.
        element: What it touches.
        phase: See `Phase`; 0 before the first.
        source: For a store, where the stored value comes from.
    """

    line: int
    kind: Kind
    element: Element
    phase: int
    source: Value = None


@dataclass(frozen=True)
class Operation:
    """One floating-point instruction that uses what was loaded.

    Attributes:
        line: The source line, from 1; 0 where the compiler names none.
        opcode: PTX's name of it: `fma`, `add`, `mul` …
        operands: Where its sources come from, in PTX's order.
        phase: See `Phase`.
    """

    line: int
    opcode: str
    operands: tuple[Value, ...]
    phase: int

    @property
    def text(self) -> str:
        """What it does with what was loaded: `M[3][0] * N[0][1]`; sums it adds to are left out."""
        return self._text(lambda each: each.name)

    @property
    def flat(self) -> str:
        """The same as a program with pointers writes it: `M[12] * N[1]`."""
        return self._text(lambda each: each.flat if each.space == "global" else each.name)

    def _text(self, name: Callable[[Element], str]) -> str:
        def shown(value: Value) -> str:
            if isinstance(value, Element):
                return name(value)
            return "…" if value is None else f"{value:g}"

        if self.opcode in ("fma", "mul"):
            product = " * ".join(map(shown, self.operands[:2]))
            rest = [name(each) for each in self.operands[2:] if isinstance(each, Element)]
            return " + ".join([product, *rest])
        known = [name(each) for each in self.operands if isinstance(each, Element)]
        sign = {"add": " + ", "sub": " - "}.get(self.opcode, ", ")
        return sign.join(known)


@dataclass(frozen=True)
class ThreadTrace:
    """What one thread does.

    Attributes:
        thread: Its index in the block, x, y, z.
        steps: What it touches and what it computes from that, in order.
        barriers: How often it waits for its block.
    """

    thread: Dim3
    steps: tuple[Access | Operation, ...]
    barriers: int

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What it touches, in order."""
        return tuple(each for each in self.steps if isinstance(each, Access))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What it computes, in order."""
        return tuple(each for each in self.steps if isinstance(each, Operation))

    def touches(self, space: str) -> tuple[Access, ...]:
        """The accesses to one state space."""
        return tuple(each for each in self.accesses if each.element.space == space)


@dataclass(frozen=True)
class Phase:
    """A round of filling shared memory and using it.

    It begins where a thread stores to shared memory after having read there; barriers keep the
    threads of a block in the same one.

    Attributes:
        number: From 1.
        staged: Stores to shared memory, with the source of each.
        operations: What is computed.
    """

    number: int
    staged: tuple[Access, ...]
    operations: tuple[Operation, ...]


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


@dataclass(frozen=True)
class Trace:
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
    arrays: tuple[ArrayUse, ...]
    shared_reuse: float | None
    staged_share: float | None


def phases(thread: ThreadTrace) -> tuple[Phase, ...]:
    """Cut what a thread does into its phases; none where it touches no shared memory."""
    last = max((each.phase for each in thread.steps), default=0)
    staged: list[list[Access]] = [[] for _ in range(last + 1)]
    computed: list[list[Operation]] = [[] for _ in range(last + 1)]
    for step in thread.steps:
        if isinstance(step, Operation):
            computed[step.phase].append(step)
        elif step.element.space == "shared" and step.kind != "load":
            staged[step.phase].append(step)
    return tuple(
        Phase(number, tuple(staged[number]), tuple(computed[number]))
        for number in range(1, last + 1)
    )


def value_name(value: Value) -> str:
    """A value's origin as a person reads it: an element's name, a number, or `computed`."""
    if isinstance(value, Element):
        return value.name
    return "computed" if value is None else f"{value:g}"
