"""The state of the host code while it is evaluated: variables, calls and launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.formulas import Formula, FormulaError
from memlab.kernels.host_code.values import (
    INTEGER_TYPES,
    REAL_TYPES,
    TENSOR_TYPES,
    Allocation,
    Cell,
    Container,
    Content,
    CType,
    EncodedMap,
    Event,
    EventKind,
    Lambda,
    Null,
    Number,
    Pointer,
    Record,
    Tensor,
    Text,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from memlab.kernels.host_code.program import Program

MAX_STEPS = 100_000
"""The most nodes that are evaluated: a few seconds' work."""
MAX_DEPTH = 24
"""The most calls inside each other."""
MAX_RECURSION = 6
"""The most calls of one function inside each other: where nothing tells when a function that calls
itself twice ends, every level doubles its work."""
MAX_LAUNCHES_OF_LINE = 16
"""The most launches of one kernel that are recorded for one line: those of loops are alike."""
MAX_EXPLORED_OF_LINE = 4
"""The same for launches that the program does not make."""

NOT_NUMBERS = (Text, Record, Container, Lambda, Tensor, EncodedMap)


class StepLimit(Exception):
    """The host code takes more than `MAX_STEPS` to evaluate; what was found so far counts."""


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


@dataclass(frozen=True)
class Loop:
    """A loop that is executed.

    Attributes:
        serial: Its number, in the order in which loops begin.
        counters: The names of the variables that it steps.
        depth: The number of scopes around it.
    """

    serial: int
    counters: frozenset[str]
    depth: int


@dataclass
class Frame:
    """A call of a function.

    Attributes:
        function: Its name.
        scopes: Its variables by name, the innermost scope last.
        types: The arguments of its template that are types.
        this: The object of a method.
        loops: The loops that are executed, the innermost last.
        elements: The memory whose elements the variables of loops such as `for (auto& e : v)` are.
        returned: The values that it may have returned where a condition is not known.
        is_instance: Whether it is of a template, whose arguments decide what its branches launch.
    """

    function: str
    scopes: list[dict[str, Cell]] = field(default_factory=lambda: [{}])
    types: dict[str, CType] = field(default_factory=dict)
    this: Record | None = None
    loops: list[Loop] = field(default_factory=list)
    elements: dict[str, Allocation] = field(default_factory=dict)
    returned: list[Value] = field(default_factory=list)
    is_instance: bool = False


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
        constants: The `__constant__` variables that were filled before, with their tensor maps.
        is_explored: Whether the program, as it is run without arguments, would not make it.
        stop: Where memlab stopped following the program, as in `Reading`: it may still make a
            launch that is explored.
        in_loop: Whether it is made in a loop, of which this is the first pass.
        is_undeduced: Whether the kernel is a template whose arguments are not known.
        cluster: Blocks of a cluster in x, y and z, from a launch attribute; None without it.
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
    constants: tuple[tuple[str, tuple[EncodedMap, ...]], ...] = ()
    is_explored: bool = False
    stop: str = ""
    in_loop: bool = False
    is_undeduced: bool = False
    cluster: tuple[Value, Value, Value] | None = None


State: TypeAlias = Cell | Allocation
"""What a statement changes: a variable, or the size of memory."""


@dataclass(frozen=True)
class Changes:
    """What statements changed: the values of variables and the sizes of memory, bytes."""

    values: dict[Cell, Value]
    sizes: dict[Allocation, Formula | None]


@dataclass
class Machine:
    """The state of an evaluation.

    Attributes:
        program: The program.
        evaluate: Evaluates an expression.
        execute: Executes a statement.
        dependent_type: Finds the type that `Traits<T>::type` or `Pair<T>` is.
        template_texts: The arguments of a template, with the values of the names in them.
        globals: The variables outside functions.
        frames: The calls, the innermost last.
        log: The variables that were written and the memory that changed its size, with what
            they had before.
        launches: The launches so far.
        line_counts: How often each line launched a kernel.
        surplus: Counts launches that were not recorded, since their lines had made enough.
        constants: The `__constant__` variables that were filled, with the tensor maps that went
            there.
        time: Counts events.
        steps: Counts nodes.
        line: The line of the statement that is executed.
        source_name: Its file.
        exploring: Depth of branches that the program would not take.
        exhausted: The branches whose launches have all been recorded often enough.
        muted: Depth of passes that are executed to see what they change: they launch nothing.
        loops: Depth of loops, in all calls.
        loop_count: Counts loops.
        has_arguments: Whether the command line is taken to have arguments.
        executed_functions: The names of the functions that were called.
        statics: The static variables of functions, by their declarators.
        unknown_count: Counts unknown numbers.
        known: The values of unknown numbers that are given, by name.
        device: The known members of `cudaDeviceProp`, by name.
        blocks_per_sm: The blocks of a kernel that an SM holds, by the kernel, the threads of a
            block and its dynamic shared memory, bytes; None where that is not known.
    """

    program: Program
    evaluate: Callable[[Machine, Node | None], Value]
    execute: Callable[[Machine, Node], None]
    dependent_type: Callable[[Machine, CType], CType | None]
    template_texts: Callable[[Machine, Node | None], tuple[str, ...]]
    globals: dict[str, Cell] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=lambda: [Frame("")])
    log: list[tuple[State, Value | Formula | None]] = field(default_factory=list)
    launches: list[RecordedLaunch] = field(default_factory=list)
    line_counts: Counter[object] = field(default_factory=Counter)
    surplus: int = 0
    constants: dict[str, tuple[EncodedMap, ...]] = field(default_factory=dict)
    time: int = 0
    steps: int = 0
    idle_steps: int = 0  # of loops that launch nothing
    line: int = 0
    source_name: str = ""
    exploring: int = 0
    exhausted: set[Node] = field(default_factory=set)
    muted: int = 0
    loops: int = 0
    loop_count: int = 0
    has_arguments: bool = False
    known: Mapping[str, int | Fraction] = field(default_factory=dict)
    device: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)
    blocks_per_sm: Callable[[str, int, int], int | None] = lambda kernel, threads, shared: None
    executed_functions: set[str] = field(default_factory=set)
    statics: dict[Node, Cell] = field(default_factory=dict)
    unknown_count: int = 0

    @property
    def frame(self) -> Frame:
        """The innermost call."""
        return self.frames[-1]

    def step(self, count: int = 1) -> None:
        """Count nodes.

        Raises:
            StepLimit: There were too many.
        """
        self.steps += count
        if self.steps > MAX_STEPS:
            raise StepLimit

    def find(self, name: str) -> Cell | None:
        """The variable of a name."""
        for scope in reversed(self.frame.scopes):
            if name in scope:
                return scope[name]
        if self.frame.this is not None and name in self.frame.this.members:
            return self.frame.this.members[name]
        spelled = (each for each in self.spellings(name) if each in self.globals)
        return self.globals.get(next(spelled, name))

    def spellings(self, name: str) -> Iterator[str]:
        """What a name may be outside functions: that of the innermost namespace comes first."""
        scope = self.frame.function
        while "::" in scope:
            scope = scope.rpartition("::")[0]
            yield f"{scope}::{name}"
        yield name

    def declare(self, name: str, value: Value, kind: CType | None) -> Cell:
        """Make a variable in the innermost scope, or outside functions."""
        cell = Cell(name, Unresolved(name), kind)
        cell.value = self.named(value, cell)
        if len(self.frames) > 1:
            self.frame.scopes[-1][name] = cell
        else:  # also without its namespace, for functions of others
            self.globals.update(dict.fromkeys(self.spellings(name), cell))
        return cell

    def write(self, cell: Cell, value: Value) -> None:
        """Write a variable; `undo` takes it back."""
        self.step()
        self.log.append((cell, cell.value))
        cell.value = self.named(value, cell)

    def resize(self, allocation: Allocation, nbytes: Formula | None) -> None:
        """Give memory a size, bytes; `undo` takes it back."""
        self.log.append((allocation, allocation.nbytes))
        allocation.nbytes = nbytes

    def put(self, state: State, held: Formula) -> None:
        """Write a number into a variable, or give memory a size."""
        if isinstance(state, Allocation):
            self.resize(state, held)
        else:
            kind = state.value.type if isinstance(state.value, Number) else "int"
            self.write(state, Number(held, kind))

    def copied(self, value: Value) -> Value:
        """A value as C++ assigns it: records are copied."""
        if not isinstance(value, Record):
            return value
        made = Record(value.type)
        for name, cell in value.members.items():
            self.step()
            made.members[name] = Cell(name, self.copied(cell.value), cell.type)
        return made

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
            made = self.unknown(cell.name, cell.type)
            if value.source is not None and isinstance(value.source.value, Unresolved):
                self.log.append((value.source, value.source.value))
                value.source.value = made
            return made
        if isinstance(value, Unresolved) and self.holds_tensor(cell.type):
            return new_tensor(cell.name)
        if isinstance(value, Tensor):
            value.name = value.name or cell.name
            value.allocation.name = value.allocation.name or cell.name
        return value

    def resolved(self, cell: Cell) -> Value:
        """The value of a member or element; one that is not known is the same at the next use."""
        if isinstance(cell.value, Unresolved):
            self.write(cell, self.unknown(cell.name, cell.type))
        return cell.value

    def settled(self, value: Value) -> Value:
        """A value where a number that is not known yet gets a name."""
        if isinstance(value, Unresolved) and value.source is not None:
            return self.resolved(value.source)
        return value

    def learn(self, left: Value, right: Value) -> None:
        """Take two values to be equal, where one of them is not known yet."""
        for value, other in ((left, right), (right, left)):
            source = value.source if isinstance(value, Unresolved) else None
            if source is not None and isinstance(source.value, Unresolved):
                known = self.settled(other)
                if isinstance(known, Number):
                    self.write(source, known)
                return

    def holds_tensor(self, kind: CType | None) -> bool:
        """Whether a variable of a type holds a tensor of PyTorch."""
        is_tensor = kind is not None and not kind.pointers and kind.name in TENSOR_TYPES
        return is_tensor and kind is not None and kind.name not in self.program.structures

    def holds_number(self, kind: CType | None) -> bool:
        """Whether a variable of a type holds a number."""
        kind = self.resolve(kind)
        return kind is not None and not kind.pointers and kind.name in NUMBER_TYPES

    def unknown(self, name: str, kind: CType | None = None) -> Number:
        """A new unknown number, or the value that is given for it."""
        self.step()
        self.unknown_count += 1
        resolved = self.resolve(kind)
        known = resolved is not None and resolved.name in NUMBER_TYPES
        type_name = resolved.name if known and resolved is not None else "int"
        if name in self.known:
            return Number(formulas.number(self.known[name]), type_name)
        return Number(formulas.unknown(name, self.unknown_count), type_name)

    def resolve(self, kind: CType | None) -> CType | None:
        """A type without aliases and parameters of templates."""
        if kind is None:
            return None
        for frame in reversed(self.frames):
            if kind.name in frame.types:
                given = frame.types[kind.name]
                kind = CType(given.name, given.pointers + kind.pointers, kind.extents)
                break
        kind = self.program.resolved_type(kind)
        if kind.name.startswith("decltype("):
            found = self.type_of(kind.name[len("decltype(") : -1])
            return kind if found is None else CType(found.name, found.pointers + kind.pointers)
        if "<" in kind.name or "::" in kind.name:
            return self.dependent_type(self, kind) or kind
        return kind

    def type_of(self, name: str) -> CType | None:
        """The type of a variable; None if it is not known."""
        cell = self.find(name.strip())
        if cell is None:
            return None
        if isinstance(cell.value, Record):
            return CType(cell.value.type)
        return self.resolve(cell.type)

    def undo(self, mark: int) -> Changes:
        """Take back what was written since a mark.

        Returns:
            The values, and the sizes of memory, that are taken back.
        """
        changed = Changes({}, {})
        while len(self.log) > mark:
            state, earlier = self.log.pop()
            if isinstance(state, Allocation):
                changed.sizes.setdefault(state, state.nbytes)
                state.nbytes = earlier if isinstance(earlier, Formula) else None
            elif earlier is not None and not isinstance(earlier, Formula):
                changed.values.setdefault(state, state.value)
                state.value = earlier
        return changed

    def redo(self, changed: Changes) -> None:
        """Write what was taken back."""
        for cell, value in changed.values.items():
            self.write(cell, value)
        for allocation, nbytes in changed.sizes.items():
            self.resize(allocation, nbytes)

    def event(self, value: Value, kind: EventKind, content: Content | None = None) -> None:
        """Note what happens to the memory that a pointer points to.

        Args:
            value: The pointer or vector; nothing happens for another value.
            kind: What happens.
            content: What the memory is filled with.
        """
        allocation = allocation_of(value)
        if allocation is not None and not self.muted:
            self.time += 1
            allocation.events.append(Event(self.time, kind, content))
            if kind == "filled":
                allocation.content = content

    @contextmanager
    def loop(self, counters: frozenset[str]) -> Iterator[None]:
        """A loop that steps variables."""
        self.loops += 1
        self.loop_count += 1
        self.frame.loops.append(Loop(self.loop_count, counters, len(self.frame.scopes)))
        try:
            yield
        finally:
            self.loops -= 1
            self.frame.loops.pop()

    def record(self, launch: RecordedLaunch) -> None:
        """Record a launch, unless its line has made enough of them."""
        if self.muted:
            return
        alike = (launch.kernel, launch.template_arguments, launch.line, launch.is_explored)
        self.line_counts[alike] += 1
        most = MAX_EXPLORED_OF_LINE if launch.is_explored else MAX_LAUNCHES_OF_LINE
        if self.line_counts[alike] <= most:
            self.launches.append(launch)
        else:
            self.surplus += 1

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block with its own variables."""
        self.frame.scopes.append({})
        try:
            yield
        finally:
            self.frame.scopes.pop()


NUMBER_TYPES = frozenset({"bool", "auto", *INTEGER_TYPES, *REAL_TYPES})
"""The types of numbers; `auto` may be one."""


def new_tensor(name: str) -> Tensor:
    """A tensor of unknown sizes."""
    allocation = Allocation(name, None, on_device=True)
    allocation.tensor = Tensor(name, allocation)
    return allocation.tensor


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
    return None if isinstance(value, Unresolved | Record) else True


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
