"""Records, pointers and items of memory, as compiled functions and Python see them.

A `Record` is a class whose annotations give the fields of a C structure. Python keeps such records
in NumPy arrays of `dtype_of(Record)`; a compiled function (`compiled`) reads and writes the fields
as attributes. Annotations of fields, of arguments and of results are:

- `int` and `float`: 64 bits; `Int32`, `Word` and so on: narrower integers in memory;
- `Pointer[Item]`: a host address, of items that follow one another; `Address`: as a plain number;
- another record, which is nested; `Annotated[Pointer[Item], n]`: an array of n items in a record;
- `Lanes`: a 64-bit integer for each lane of a warp.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import numpy as np
from llvmlite import ir

from memlab.device.emulator.isa.values import (
    F64,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    ElementType,
    Value,
    constant,
    shaped,
)
from memlab.device.properties import WARP_SIZE

T = TypeVar("T")

Int32 = Annotated[int, S32]
"""A signed integer of 32 bits in memory."""
Byte = Annotated[int, U8]
Half = Annotated[int, U16]
Word = Annotated[int, U32]
"""Unsigned integers in memory."""
Address = Annotated[int, U64]
"""A host address, as a number."""
Lanes = Annotated[Value, (S64, WARP_SIZE)]
"""A 64-bit integer for each lane of a warp."""
NarrowLanes = Annotated[Value, (S32, WARP_SIZE)]
"""A 32-bit integer for each lane of a warp."""

_STACK_ALIGNMENT_BYTES = 16
_BYTE, _I64, _POINTER = ir.IntType(8), ir.IntType(64), ir.PointerType()

_current: ContextVar[ir.IRBuilder] = ContextVar("builder")


@contextmanager
def building(b: ir.IRBuilder) -> Iterator[None]:
    """Append instructions to a builder."""
    token = _current.set(b)
    try:
        yield
    finally:
        _current.reset(token)


def builder() -> ir.IRBuilder:
    """Where the function under construction is appended to."""
    return _current.get()


def stack_room(kind: ir.Type) -> ir.Value:
    """A pointer to memory on the stack, which holds anything."""
    b = builder()
    with b.goto_entry_block():
        room = b.alloca(kind)
    room.align = _STACK_ALIGNMENT_BYTES
    room.type = _POINTER  # llvmlite gives it a typed one, which LLVM no longer has
    return room


# --- Items ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A number, or one per lane, as it lies in memory.

    Attributes:
        element: Its type. A compiled function sees a single integer as one of 64 bits.
        lanes: How many lanes; 0 for a single number.
    """

    element: ElementType
    lanes: int = 0


@dataclass(frozen=True)
class PointerTo:
    """A host address of items that follow one another.

    Attributes:
        target: Their annotation.
    """

    target: Any


@dataclass(frozen=True)
class Nested:
    """A record in a record; as an argument or result, its host address.

    Attributes:
        record: Its class.
    """

    record: Any


@dataclass(frozen=True)
class Items:
    """An array in a record.

    Attributes:
        target: The annotation of its items.
        count: How many.
    """

    target: Any
    count: int


Item: TypeAlias = Number | PointerTo | Nested | Items | None
"""What an annotation describes: what lies in memory, is an argument, or is a result, if any."""
NUMBER = Number(S64)


def item_of(annotation: Any) -> Item:
    """The item that an annotation describes.

    Raises:
        TypeError: It describes none.
    """
    if annotation is int or annotation is bool:
        return NUMBER
    if annotation is float:
        return Number(F64)
    if annotation is None:
        return None
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return Nested(annotation)
    if get_origin(annotation) is Pointer:
        return PointerTo(get_args(annotation)[0])
    if get_origin(annotation) is Annotated:
        inner, detail = get_args(annotation)
        match detail:
            case ElementType():
                return Number(detail)
            case ElementType() as element, int(lanes):
                return Number(element, lanes)
            case int(count):
                return Items(get_args(inner)[0], count)
    raise TypeError(f"{annotation!r} describes nothing that lies in memory")


def type_of(item: Item) -> ir.Type:
    """The LLVM type of an item."""
    match item:
        case Number():
            return shaped(item.element, item.lanes)
        case None:
            return ir.VoidType()
    return _POINTER


def field_of(item: Item) -> np.dtype[Any]:
    """The NumPy type of an item."""
    match item:
        case Number():
            one = np.dtype(f"{item.element.kind}{item.element.bits // 8}")
            return np.dtype((one, item.lanes)) if item.lanes else one
        case Nested():
            return dtype_of(cast(Any, item.record))
        case Items():
            return np.dtype((field_of(item_of(item.target)), item.count))
    return np.dtype("u8")


def seen(item: Item, raw: ir.Value) -> Any:
    """An LLVM value as a compiled function sees it."""
    match item:
        case Number():
            value = Value(builder(), raw, item.element)
            is_integer = item.element.kind in "iu" and not item.lanes
            return value.to(S64) if is_integer else value
        case PointerTo():
            return Pointer(raw, item.target)
        case Nested():
            return Reference(raw, item.record)


def raw_value(item: Item, value: Any) -> ir.Value:
    """The reverse of `seen`; a number of Python becomes a constant."""
    match item, value:
        case Number(), Value():
            if value.lanes != item.lanes:
                raise TypeError(f"{value.lanes} lanes are used as {item.lanes}")
            return value.to(item.element).ir
        case Number(), _:
            return constant(value, item.element, item.lanes)
        case _, Pointer() | Reference():
            return start_of(value)
        case _, Value():
            return builder().inttoptr(value.ir, _POINTER)
    raise TypeError(f"{value!r} is used as {item}")


def load(item: Item, place: ir.Value) -> Any:
    """What lies at a pointer."""
    match item:
        case Nested():
            return Reference(place, item.record)
        case Items():
            return Pointer(place, item.target)
    return seen(item, builder().load(place, typ=type_of(item), align=_alignment(item)))


def store(item: Item, place: ir.Value, value: Any) -> None:
    """Write to a pointer."""
    builder().store(raw_value(item, value), place, align=_alignment(item))


def _alignment(item: Item) -> int:
    return max(item.element.bits // 8, 1) if isinstance(item, Number) else 8


def number(value: float) -> Value:
    """A number of Python as a constant."""
    item = Number(F64) if isinstance(value, float) else NUMBER
    return Value(builder(), raw_value(item, value), item.element)


# --- Records and pointers -------------------------------------------------------------------------


class Record:
    """A C structure; the annotations of a class are its fields."""


@cache
def fields_of(record: Any) -> Mapping[str, Item]:
    """The fields of a record."""
    hints = inspect.get_annotations(record, eval_str=True)
    return {name: item_of(hint) for name, hint in hints.items()}


@cache
def dtype_of(record: Any) -> np.dtype[np.void]:
    """The NumPy type of a record, laid out as by C."""
    fields = [(name, field_of(item)) for name, item in fields_of(record).items()]
    return np.dtype(fields, align=True)


class Reference:
    """A record in memory: its attributes are the fields."""

    __slots__ = ("_record", "_start")

    def __init__(self, start: ir.Value, record: type[Record]) -> None:
        object.__setattr__(self, "_start", start)
        object.__setattr__(self, "_record", record)

    def __getattr__(self, name: str) -> Any:
        return load(*_field(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        store(*_field(self, name), value)


def _field(record: Reference, name: str) -> tuple[Item, ir.Value]:
    """A field, and where it lies."""
    fields = dtype_of(record._record).fields
    if fields is None or name not in fields:
        raise AttributeError(f"{record._record.__name__} has no field {name}")
    place = builder().gep(record._start, [_I64(fields[name][1])], source_etype=_BYTE)
    return fields_of(record._record)[name], place


def field_pointer(record: Any, name: str, target: Any) -> Pointer[Any]:
    """A pointer to a field of a record, to see its items one by one."""
    return Pointer(_field(record, name)[1], target)


class Pointer(Generic[T]):
    """A pointer to items that follow one another.

    Attributes:
        start: Where the first one lies.
        target: The annotation of the items.
    """

    def __init__(self, start: ir.Value, target: Any) -> None:
        self.start, self.target = start, target

    @property
    def address(self) -> int:
        """The host address."""
        b = builder()
        return cast(int, Value(b, b.ptrtoint(self.start, _I64), S64))

    def __getitem__(self, index: int) -> T:
        loaded: T = load(item_of(self.target), (self + index).start)
        return loaded

    def __setitem__(self, index: int, value: T) -> None:
        store(item_of(self.target), (self + index).start, value)

    def __add__(self, items: int) -> Pointer[T]:
        distance = raw_value(NUMBER, items * field_of(item_of(self.target)).itemsize)
        moved = builder().gep(self.start, [distance], source_etype=_BYTE)
        return Pointer(moved, self.target)

    def to(self, target: Any) -> Pointer[Any]:
        """The same address, of other items."""
        return Pointer(self.start, target)


def start_of(value: Pointer[Any] | Reference) -> ir.Value:
    """The LLVM pointer of a pointer or record."""
    return value.start if isinstance(value, Pointer) else value._start


def pointer_to(address: int, target: Any) -> Pointer[Any]:
    """A pointer from a host address; 0 gives the null pointer."""
    known = address if isinstance(address, Value) else number(address)
    return Pointer(raw_value(PointerTo(target), known), target)


def room(target: Any, count: int = 1) -> Pointer[Any]:
    """Memory on the stack for some items; it holds anything."""
    size = field_of(item_of(target)).itemsize
    return Pointer(stack_room(ir.ArrayType(_BYTE, size * count)), target)
