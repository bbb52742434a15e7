"""What a variable of host code holds: numbers, pointers into allocations, records and the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from memlab.kernels.host_code.formulas import Formula, number

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class CType:
    """A type of C++ without its qualifiers: `float **` is `("float", 2)`."""

    name: str
    pointers: int = 0

    @property
    def pointee(self) -> CType | None:
        """What a pointer of this type points to."""
        return CType(self.name, self.pointers - 1) if self.pointers else None


@dataclass(frozen=True)
class Number:
    """A number, or a quotient that only its rounding makes a formula.

    Attributes:
        formula: The number, or the dividend.
        type: Its C++ type.
        divisor: The divisor of a quotient of real numbers.
    """

    formula: Formula
    type: str = "int"
    divisor: Formula | None = None

    @property
    def is_real(self) -> bool:
        """Whether it is a floating-point number."""
        return self.type in REAL_TYPES


REAL_TYPES = frozenset({"float", "double", "half", "__half", "__nv_bfloat16", "long double"})


@dataclass(frozen=True)
class Unresolved:
    """A value that the source does not tell; `name` says what it is."""

    name: str


@dataclass(frozen=True)
class Null:
    """A null pointer."""


@dataclass(frozen=True)
class Text:
    """A string literal."""

    text: str


@dataclass(frozen=True)
class FunctionName:
    """A function or kernel by its name; `arguments` are those of a template."""

    name: str
    arguments: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Lambda:
    """A lambda expression, called by its node."""

    node: Node


@dataclass(eq=False)
class Cell:
    """A variable, a member or an element."""

    name: str
    value: Value
    type: CType | None = None


@dataclass(eq=False)
class Record:
    """A structure or class; `dim3` has the members x, y and z."""

    type: str
    members: dict[str, Cell] = field(default_factory=dict)

    def member(self, name: str) -> Cell:
        """The member of a name."""
        return self.members.setdefault(name, Cell(name, Unresolved(name)))

    def copy(self) -> Record:
        """A copy, as C++ assigns it."""
        return Record(
            self.type,
            {
                name: Cell(name, copied(cell.value), cell.type)
                for name, cell in self.members.items()
            },
        )


EventKind = Literal["filled", "zeroed", "read", "launched", "launched_const"]


@dataclass(eq=False)
class Allocation:
    """Memory that the host code allocates.

    Attributes:
        name: The variable that first pointed to it.
        nbytes: Its size; None if the source does not tell it.
        on_device: Whether kernels can be passed a pointer to it.
        shared_with_host: Whether the host reads and writes it too, without copies.
        events: When it was filled, zeroed, read by the host or passed to a kernel.
        elements: The elements that were written one by one, by index.
    """

    name: str
    nbytes: Formula | None
    on_device: bool = False
    shared_with_host: bool = False
    events: list[tuple[int, EventKind]] = field(default_factory=list)
    elements: dict[int, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Pointer:
    """A pointer into an allocation.

    Attributes:
        allocation: The allocation.
        offset: The distance from its start, bytes.
        element: The type that it points to.
    """

    allocation: Allocation
    offset: Formula = number(0)  # noqa: RUF009 - immutable
    element: CType | None = None


@dataclass(frozen=True)
class Address:
    """A pointer to a variable."""

    cell: Cell


@dataclass(eq=False)
class Container:
    """A vector of the standard library or Thrust: its memory and the type of its elements."""

    allocation: Allocation
    element: CType
    on_device: bool = False


Value: TypeAlias = (
    Number
    | Unresolved
    | Null
    | Text
    | FunctionName
    | Lambda
    | Record
    | Pointer
    | Address
    | Container
)


def copied(value: Value) -> Value:
    """A value as C++ assigns it: records are copied."""
    return value.copy() if isinstance(value, Record) else value


def dim3(x: Formula, y: Formula | None = None, z: Formula | None = None) -> Record:
    """The extents of a grid or a block."""
    extents = {"x": x, "y": y or number(1), "z": z or number(1)}
    return Record("dim3", {axis: Cell(axis, Number(n)) for axis, n in extents.items()})
