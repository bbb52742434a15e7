"""The runtime's copies: the elements of a warp's lanes between memory and a buffer.

A buffer has a row for each element of a lane: `buffer[vector][32]`. A function for each shape moves
the lanes of a pattern; `copy_each` moves lanes that lie anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

from memlab.device.emulator.codegen.compiled import compiled, set_bits
from memlab.device.emulator.codegen.lanes import (
    ALL_LANES,
    fill_bytes,
    highest_bit,
    lanes_of,
    lowest_bit,
    pick,
)
from memlab.device.emulator.codegen.layout import Pattern, Site
from memlab.device.emulator.codegen.records import (
    Address,
    Byte,
    Int32,
    Pointer,
    builder,
    field_pointer,
    pointer_to,
    room,
)
from memlab.device.emulator.isa.values import intrinsic
from memlab.device.properties import WARP_SIZE

Direction = Literal["load", "store"]
_EVERY_LANE = tuple(range(WARP_SIZE))


@dataclass(frozen=True)
class Shape:
    """The elements that a lane accesses, seen as words of at most 64 bits.

    Attributes:
        bytes: Bytes of an element.
        vector: Elements.
    """

    bytes: int
    vector: int

    @property
    def size(self) -> int:
        """Bytes per lane."""
        return self.bytes * self.vector

    @property
    def words(self) -> int:
        """Words of an element."""
        return max(self.bytes // 8, 1)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the buffer."""
        return WARP_SIZE * self.bytes

    def lanes(self, elements: int) -> ir.VectorType:
        """So many elements, as words."""
        word = ir.IntType(8 * self.bytes // self.words)
        return ir.VectorType(word, elements * self.words)

    @property
    def one(self) -> ir.VectorType:
        """All elements of a lane."""
        return self.lanes(self.vector)

    @property
    def row(self) -> ir.VectorType:
        """One element of every lane: a row of the buffer."""
        return self.lanes(WARP_SIZE)

    @property
    def whole(self) -> ir.VectorType:
        """All elements of every lane, lane after lane."""
        return self.lanes(WARP_SIZE * self.vector)

    @property
    def has_masked_copy(self) -> bool:
        """Whether the machine has instructions that move some of all lanes' elements."""
        return self.bytes >= 4 and self.words * self.vector <= 4


SHAPES = tuple(
    Shape(element_bytes, vector)
    for element_bytes in (1, 2, 4, 8, 16)
    for vector in (1, 2, 4, 8)
    if element_bytes * vector <= 32
)
"""The elements that an access can have."""


def shape_number(element_bytes: int, vector: int) -> int:
    """A number for a shape; both of its numbers are powers of two."""
    return lowest_bit(element_bytes) * 4 + lowest_bit(vector)


def _copy(direction: Direction, shape: Shape) -> Any:
    """The function that moves the elements of the lanes of a pattern.

    `host` is the host address of the first active lane's elements. A lane's own memory lies
    `lane_bytes` behind that of the lane before it; that is 0 for memory that lanes share.
    """

    @compiled(name=f"{direction}_{shape.bytes}x{shape.vector}")
    def copy(
        host: Address, pattern: Pattern, lane_bytes: int, mask: int, buffer: Pointer[Byte]
    ) -> None:
        first, step = pointer_to(host, Byte), pattern.stride + lane_bytes
        if step == 0:
            if direction == "load":
                _load_uniform(shape, first, mask, buffer)
            else:
                _store_uniform(shape, first, mask, buffer)
        elif step == shape.size and mask == ALL_LANES:
            if direction == "load":
                _store_rows(shape, buffer, _load_vector(first, shape.whole))
            else:
                _store_vector(first, _load_rows(shape, buffer))
        elif shape.has_masked_copy and step == shape.size:
            start = pointer_to(host - lowest_bit(mask) * shape.size, Byte)
            _copy_masked(direction, shape, start, mask, buffer)
        else:
            # The first active lane's place, seen from lane 0.
            start = pointer_to(host - lowest_bit(mask) * lane_bytes, Byte)
            relative = field_pointer(pattern, "relative", Int32)
            if direction == "load":
                # An inactive lane reads what lies at the first active lane's address.
                places = [start + (relative[i] + lane_bytes * i) for i in _EVERY_LANE]
                _load_scattered(shape, places, mask, buffer)
            else:
                values = _by_lane(shape, buffer)
                if mask == ALL_LANES:
                    for lane in _EVERY_LANE:
                        place = start + (relative[lane] + lane * lane_bytes)
                        _store_vector(place, _load_vector(values + lane * shape.size, shape.one))
                else:
                    for lane in set_bits(mask):
                        place = start + (relative[lane] + lane * lane_bytes)
                        _store_vector(place, _load_vector(values + lane * shape.size, shape.one))

    return copy


COPIES: dict[Direction, dict[int, Any]] = {
    direction: {
        4 * (shape.bytes.bit_length() - 1) + shape.vector.bit_length() - 1: _copy(direction, shape)
        for shape in SHAPES
    }
    for direction in ("load", "store")
}
"""The functions by `shape_number`."""


# --- Vectors --------------------------------------------------------------------------------------


def _load_vector(place: Pointer[Any], kind: ir.Type) -> ir.Value:
    return builder().load(place.start, typ=kind, align=1)


def _store_vector(place: Pointer[Any], value: ir.Value) -> None:
    builder().store(value, place.start, align=1)


def _load_uniform(shape: Shape, first: Pointer[Byte], mask: int, buffer: Pointer[Byte]) -> None:
    """All active lanes read the same address."""
    b, one, lanes = builder(), _load_vector(first, shape.one), _spread(mask, shape.words)
    for number in range(shape.vector):
        words = range(number * shape.words, (number + 1) * shape.words)
        row = b.select(lanes, pick(one, [*words] * WARP_SIZE), ir.Constant(shape.row, None))
        _store_vector(buffer + number * shape.row_bytes, row)


def _store_uniform(shape: Shape, first: Pointer[Byte], mask: int, buffer: Pointer[Byte]) -> None:
    """All active lanes write to the same address: the highest one's values stay."""
    lane = highest_bit(mask)
    for number in range(shape.vector):
        place = buffer + number * shape.row_bytes + lane * shape.bytes
        _store_vector(first + number * shape.bytes, _load_vector(place, shape.lanes(1)))


def _copy_masked(
    direction: Direction, shape: Shape, start: Pointer[Byte], mask: int, buffer: Pointer[Byte]
) -> None:
    """Move the active lanes of contiguous elements; `start` is lane 0's place."""
    b, whole, align = builder(), shape.whole, ir.IntType(32)
    lanes = _spread(mask, shape.words * shape.vector)
    name, suffix = f"llvm.masked.{direction}", f"v{whole.count}i{whole.element.width}.p0"
    pointer = start.start.type
    if direction == "load":
        move = intrinsic(b, name, whole, [pointer, align, lanes.type, whole], suffix)
        arguments = [start.start, align(1), lanes, ir.Constant(whole, None)]
        _store_rows(shape, buffer, b.call(move, arguments))
    else:
        move = intrinsic(b, name, ir.VoidType(), [whole, pointer, align, lanes.type], suffix)
        b.call(move, [_load_rows(shape, buffer), start.start, align(1), lanes])


def _load_scattered(
    shape: Shape, places: list[Pointer[Byte]], mask: int, buffer: Pointer[Byte]
) -> None:
    """Every lane reads from its own place."""
    parts = [_load_vector(place, shape.one) for place in places]
    lanes = _spread(mask, shape.words * shape.vector)
    values = builder().select(lanes, _joined(parts), ir.Constant(shape.whole, None))
    _store_rows(shape, buffer, values)


def _by_lane(shape: Shape, buffer: Pointer[Byte]) -> Pointer[Byte]:
    """The elements of a buffer, lane after lane."""
    if shape.vector == 1:
        return buffer
    values: Pointer[Byte] = room(Byte, WARP_SIZE * shape.size)
    _store_vector(values, _load_rows(shape, buffer))
    return values


def _spread(mask: int, times: int) -> ir.Value:
    """A mask as a predicate with so many elements per lane."""
    return pick(lanes_of(mask).ir, [lane for lane in range(WARP_SIZE) for _ in range(times)])


def _store_rows(shape: Shape, buffer: Pointer[Byte], whole: ir.Value) -> None:
    """Store the elements of all lanes, lane after lane, as rows."""
    words, vector = shape.words, shape.vector
    for number in range(vector):
        firsts = [(lane * vector + number) * words for lane in range(WARP_SIZE)]
        row = pick(whole, [first + word for first in firsts for word in range(words)])
        _store_vector(buffer + number * shape.row_bytes, row)


def _load_rows(shape: Shape, buffer: Pointer[Byte]) -> ir.Value:
    """The elements of all lanes, lane after lane, from rows."""
    starts = [buffer + number * shape.row_bytes for number in range(shape.vector)]
    rows = _joined([_load_vector(start, shape.row) for start in starts])
    order = [
        number * shape.row.count + lane * shape.words + word
        for lane in range(WARP_SIZE)
        for number in range(shape.vector)
        for word in range(shape.words)
    ]
    return pick(rows, order)


def _joined(parts: list[ir.Value]) -> ir.Value:
    """Vectors one after the other; their number is a power of two."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [pick(pair[0], range(2 * pair[0].type.count), pair[1]) for pair in pairs]
    return parts[0]


# --- Lanes that lie anywhere ----------------------------------------------------------------------


def _copy_each(direction: Direction) -> Any:
    """The function that moves lanes one by one, from or to host addresses."""

    @compiled(name=f"{direction}_each")
    def move(site: Site, mask: int, pointers: Pointer[int], buffer: Pointer[Byte]) -> None:
        element_bytes = site.element_bytes
        row_bytes = element_bytes * WARP_SIZE
        if direction == "load":
            fill_bytes(buffer, row_bytes * site.vector)
        for lane in set_bits(mask):
            place = pointer_to(pointers[lane], Byte)
            for number in range(site.vector):
                there = place + number * element_bytes
                here = buffer + number * row_bytes + lane * element_bytes
                for byte in range(element_bytes):
                    if direction == "load":
                        here[byte] = there[byte]
                    else:
                        there[byte] = here[byte]

    return move


copy_each: dict[Direction, Any] = {
    direction: _copy_each(direction) for direction in ("load", "store")
}
"""The functions by direction."""
