"""What a variable of host code holds: numbers, pointers into allocations, records and the rest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from memlab.kernels.host_code.formulas import Formula, number

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class CType:
    """A type of C++ without its qualifiers: `float **` is `("float", 2)`.

    Attributes:
        name: Its name without pointers.
        pointers: How many pointers it has.
        extents: Of an array, such as a row of `float a[4][100]`, its extents.
    """

    name: str
    pointers: int = 0
    extents: tuple[int, ...] = ()

    @property
    def pointee(self) -> CType | None:
        """What a pointer of this type points to."""
        return CType(self.name, self.pointers - 1) if self.pointers else None

    @property
    def row(self) -> CType:
        """What the elements of an array of this type are."""
        return replace(self, extents=self.extents[1:])


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
INTEGER_TYPES = {
    **dict.fromkeys(("char", "int8_t"), (8, True)),
    **dict.fromkeys(("uchar", "uint8_t"), (8, False)),
    **dict.fromkeys(("short", "int16_t"), (16, True)),
    **dict.fromkeys(("ushort", "uint16_t"), (16, False)),
    **dict.fromkeys(("int", "int32_t"), (32, True)),
    **dict.fromkeys(("uint", "unsigned", "uint32_t", "cuuint32_t"), (32, False)),
    **dict.fromkeys(("long", "longlong", "int64_t", "ssize_t", "ptrdiff_t"), (64, True)),
    **dict.fromkeys(("ulong", "ulonglong", "uint64_t", "cuuint64_t", "size_t"), (64, False)),
}
"""The bits of whole numbers on 64-bit Linux, and whether they have a sign."""


@dataclass(frozen=True)
class Unresolved:
    """A value that the source does not tell.

    Attributes:
        name: What it is.
        source: What it was read from, which is the same number at its next use.
    """

    name: str
    source: Cell | None = None


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


@dataclass(frozen=True, eq=False)
class Lambda:
    """A lambda expression.

    Attributes:
        node: The expression.
        scopes: The variables around it, by name, the innermost scope last.
    """

    node: Node
    scopes: tuple[dict[str, Cell], ...]


@dataclass(eq=False)
class Cell:
    """A variable, a member or an element."""

    name: str
    value: Value
    type: CType | None = None
    is_element: bool = False


@dataclass(eq=False)
class Record:
    """A structure or class; `dim3` has the members x, y and z."""

    type: str
    members: dict[str, Cell] = field(default_factory=dict)

    def member(self, name: str) -> Cell:
        """The member of a name."""
        return self.members.setdefault(name, Cell(name, Unresolved(name)))


EventKind = Literal["filled", "read", "launched", "launched_const"]


@dataclass(frozen=True)
class Content:
    """What the elements of an array are.

    Attributes:
        kind: `number`: all are `low`. `index`: each is its index. `rising`: they grow with their
            index. `range`: they are whole numbers from `low` to below `high`.
        low: The number, or the smallest element.
        high: The end of a range.
    """

    kind: Literal["number", "index", "rising", "range"]
    low: Formula = number(0)  # noqa: RUF009 - immutable
    high: Formula | None = None


ZEROS = Content("number")


@dataclass(frozen=True)
class Event:
    """What happens to memory: its time in the order of events, and what it is filled with."""

    time: int
    kind: EventKind
    content: Content | None = None


@dataclass(eq=False)
class Allocation:
    """Memory that the host code allocates.

    Attributes:
        name: The variable that first pointed to it.
        nbytes: Its size; None if the source does not tell it.
        count: The number of its elements, where that is known and its size is not.
        tensor: The tensor whose elements it holds.
        on_device: Whether kernels can be passed a pointer to it.
        shared_with_host: Whether the host reads and writes it too, without copies.
        events: When it was filled, read by the host or passed to a kernel.
        content: What it was last filled with; None if that is not known.
        stores: What each expression of a loop stored, by its node.
        stores_loop: The number of this loop.
        elements: The elements that were written one by one, by index.
        is_list: Whether `elements` are all, as in `{32, 64}`.
    """

    name: str
    nbytes: Formula | None
    on_device: bool = False
    shared_with_host: bool = False
    events: list[Event] = field(default_factory=list)
    content: Content | None = None
    count: Formula | None = None
    tensor: Tensor | None = None
    stores: dict[Node, Content | None] = field(default_factory=dict)
    stores_loop: int = 0
    elements: dict[int, Cell] = field(default_factory=dict)
    is_list: bool = False


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


@dataclass(eq=False)
class Tensor:
    """A tensor of PyTorch.

    Attributes:
        name: The variable that first held it.
        allocation: Its memory.
        sizes: Its sizes, as far as they were used, by dimension.
        count: The number of its elements, if it was used.
    """

    name: str
    allocation: Allocation
    sizes: dict[int, Cell] = field(default_factory=dict)
    count: Cell | None = None


@dataclass(frozen=True)
class EncodedMap:
    """A tensor map as the driver encodes it; tuples are in its order, the fastest dimension first.

    Attributes:
        address: The address of the tensor.
        type: The number of its element type, a `CUtensorMapDataType`.
        extents: The extents of the tensor.
        strides: The bytes from an element to the next along each dimension but the first.
        box: The extents of a copy; of im2col, the channels and the pixels.
        steps: Of so many elements along each dimension, one is copied.
        options: The numbers of interleave, swizzle, promotion and fill.
        corners: Of im2col, the lower and the upper corner; None for tiles.
    """

    address: Value
    type: Value
    extents: tuple[Value, ...]
    strides: tuple[Value, ...]
    box: tuple[Value, ...]
    steps: tuple[Value, ...]
    options: tuple[Value, ...]
    corners: tuple[tuple[Value, ...], tuple[Value, ...]] | None = None


TENSOR_TYPES = frozenset({"torch::Tensor", "at::Tensor", "Tensor"})

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
    | Tensor
    | EncodedMap
)


def dim3(x: Formula, y: Formula | None = None, z: Formula | None = None) -> Record:
    """The extents of a grid or a block."""
    extents = {"x": x, "y": y or number(1), "z": z or number(1)}
    return Record("dim3", {axis: Cell(axis, Number(n)) for axis, n in extents.items()})
