"""The state of the host code while it is evaluated: variables, calls and launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.formulas import Formula, FormulaError
from memlab.kernels.host_code.values import (
    Allocation,
    Cell,
    Container,
    CType,
    EventKind,
    Lambda,
    Null,
    Number,
    Pointer,
    Record,
    Text,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from memlab.kernels.host_code.program import Program

MAX_STEPS = 100_000
"""The most nodes that are evaluated: a second's work."""
MAX_DEPTH = 24
"""The most calls inside each other."""

NOT_NUMBERS = (Text, Record, Container, Lambda)


class StepLimit(Exception):
    """The host code takes too long to evaluate; what was found so far counts."""


class ControlFlow(Exception):
    """The statements that follow are not executed."""


class Return(ControlFlow):
    """A function returns a value."""

    def __init__(self, value: Value | None) -> None:
        self.value = value


class Break(ControlFlow):
    """A loop or switch ends."""


class Continue(ControlFlow):
    """The next pass of a loop begins."""


class Exit(ControlFlow):
    """The program ends."""


@dataclass
class Frame:
    """A call of a function.

    Attributes:
        function: Its name.
        scopes: Its variables by name, the innermost scope last.
        types: The arguments of its template that are types.
        this: The object of a method.
        returned: The values that it may have returned where a condition is not known.
    """

    function: str
    scopes: list[dict[str, Cell]] = field(default_factory=lambda: [{}])
    types: dict[str, CType] = field(default_factory=dict)
    this: Record | None = None
    returned: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch as the host code makes it.

    Attributes:
        kernel: The kernel's name.
        template_arguments: Its template arguments as they are written, with the values of the
            names in them; None without any.
        grid: Blocks in x, y and z.
        block: Threads of a block in x, y and z.
        shared: Dynamic shared memory, bytes.
        arguments: The arguments.
        time: When it happens, in the order of the events of allocations.
        line: Its line.
        source_name: Its file.
        function: The function that makes it.
        constants: The `__constant__` variables that were filled before.
        is_explored: Whether the program, as it is run without arguments, would not make it.
        in_loop: Whether it is made in a loop, of which this is the first pass.
        is_undeduced: Whether the kernel is a template whose arguments are not known.
    """

    kernel: str
    template_arguments: tuple[str, ...] | None
    grid: tuple[Value, Value, Value]
    block: tuple[Value, Value, Value]
    shared: Value
    arguments: tuple[Value, ...]
    time: int
    line: int
    source_name: str
    function: str
    constants: tuple[str, ...] = ()
    is_explored: bool = False
    in_loop: bool = False
    is_undeduced: bool = False


@dataclass
class Machine:
    """The state of an evaluation.

    Attributes:
        program: The program.
        evaluate: Evaluates an expression.
        execute: Executes a statement.
        globals: The variables outside functions.
        frames: The calls, the innermost last.
        log: The cells that were written, with their earlier values.
        launches: The launches so far.
        constants: The `__constant__` variables that were filled.
        time: Counts events.
        steps: Counts nodes.
        line: The line of the statement that is executed.
        source_name: Its file.
        exploring: Depth of branches that the program would not take.
        loops: Depth of loops.
        has_arguments: Whether the command line is taken to have arguments.
    """

    program: Program
    evaluate: Callable[[Machine, Node | None], Value]
    execute: Callable[[Machine, Node], None]
    globals: dict[str, Cell] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=lambda: [Frame("")])
    log: list[tuple[Cell, Value]] = field(default_factory=list)
    launches: list[RecordedLaunch] = field(default_factory=list)
    constants: dict[str, None] = field(default_factory=dict)
    time: int = 0
    steps: int = 0
    line: int = 0
    source_name: str = ""
    exploring: int = 0
    loops: int = 0
    has_arguments: bool = False
    executed_functions: set[str] = field(default_factory=set)
    unknown_count: int = 0

    @property
    def frame(self) -> Frame:
        """The innermost call."""
        return self.frames[-1]

    def step(self) -> None:
        """Count a node.

        Raises:
            StepLimit: There were too many.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise StepLimit

    def find(self, name: str) -> Cell | None:
        """The variable of a name."""
        for scope in reversed(self.frame.scopes):
            if name in scope:
                return scope[name]
        if self.frame.this is not None and name in self.frame.this.members:
            return self.frame.this.members[name]
        return self.globals.get(name)

    def declare(self, name: str, value: Value, kind: CType | None) -> Cell:
        """Make a variable in the innermost scope, or outside functions."""
        cell = Cell(name, Unresolved(name), kind)
        cell.value = self.named(value, cell)
        (self.frame.scopes[-1] if len(self.frames) > 1 else self.globals)[name] = cell
        return cell

    def write(self, cell: Cell, value: Value) -> None:
        """Write a variable; `undo` takes it back."""
        self.log.append((cell, cell.value))
        cell.value = self.named(value, cell)

    def named(self, value: Value, cell: Cell) -> Value:
        """A value for a variable: an unresolved number becomes an unknown with its name."""
        if isinstance(value, Pointer):
            if not value.allocation.name:
                value.allocation.name = cell.name
            kind = self.resolve(cell.type)
            pointee = kind.pointee if kind is not None else None
            if pointee is not None and pointee.name not in ("void", "auto"):
                return Pointer(value.allocation, value.offset, pointee)
        if isinstance(value, Unresolved) and self.holds_number(cell.type):
            return self.unknown(cell.name, cell.type)
        return value

    def holds_number(self, kind: CType | None) -> bool:
        """Whether a variable of a type holds a number."""
        kind = self.resolve(kind)
        return kind is not None and not kind.pointers and kind.name in NUMBER_TYPES

    def unknown(self, name: str, kind: CType | None = None) -> Number:
        """A new unknown number."""
        self.unknown_count += 1
        resolved = self.resolve(kind)
        known = resolved is not None and resolved.name in NUMBER_TYPES
        type_name = resolved.name if known and resolved is not None else "int"
        return Number(formulas.unknown(name, self.unknown_count), type_name)

    def resolve(self, kind: CType | None) -> CType | None:
        """A type without aliases and parameters of templates."""
        if kind is None:
            return None
        for frame in reversed(self.frames):
            if kind.name in frame.types:
                given = frame.types[kind.name]
                kind = CType(given.name, given.pointers + kind.pointers)
                break
        return self.program.resolved_type(kind)

    def undo(self, mark: int) -> dict[Cell, Value]:
        """Take back what was written since a mark.

        Returns:
            The values that are taken back.
        """
        changed: dict[Cell, Value] = {}
        while len(self.log) > mark:
            cell, earlier = self.log.pop()
            changed.setdefault(cell, cell.value)
            cell.value = earlier
        return changed

    def redo(self, changed: dict[Cell, Value]) -> None:
        """Write values that were taken back."""
        for cell, value in changed.items():
            self.write(cell, value)

    def event(self, value: Value, kind: EventKind) -> None:
        """Note what happens to the memory that a pointer points to."""
        allocation = allocation_of(value)
        if allocation is not None:
            self.time += 1
            allocation.events.append((self.time, kind))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block with its own variables."""
        self.frame.scopes.append({})
        try:
            yield
        finally:
            self.frame.scopes.pop()


NUMBER_TYPES = frozenset(
    {
        *("bool", "char", "uchar", "short", "ushort", "int", "uint", "unsigned", "long", "ulong"),
        *("longlong", "ulonglong", "size_t", "ssize_t", "float", "double", "auto", "ptrdiff_t"),
        *("half", "__half", "__nv_bfloat16"),
        *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
"""The types of numbers; `auto` may be one."""


def allocation_of(value: Value) -> Allocation | None:
    """The memory that a pointer or a vector stands for."""
    return value.allocation if isinstance(value, Pointer | Container) else None


def formula_of(value: Value) -> Formula | None:
    """The number in a value; None for another value, or a quotient that is no formula."""
    return value.formula if isinstance(value, Number) and value.divisor is None else None


def truth_of(value: Value) -> bool | None:
    """Whether a value counts as true; None if that is not known."""
    if isinstance(value, Number):
        constant = value.formula.constant
        return None if constant is None else constant != 0
    if isinstance(value, Null):
        return False
    return None if isinstance(value, Unresolved) else True


def same(left: Value, right: Value) -> bool:
    """Whether two values are the same."""
    if isinstance(left, Record) and isinstance(right, Record):
        return left.members.keys() == right.members.keys() and all(
            same(cell.value, right.members[name].value) for name, cell in left.members.items()
        )
    return left is right or left == right


def safe(compute: Callable[[], Formula]) -> Formula | None:
    """A formula; None where there is none."""
    try:
        return compute()
    except (FormulaError, ZeroDivisionError, OverflowError):
        return None
