"""The runtime's copies: the elements of a warp's lanes between memory and a buffer.

A buffer has a row for each element of a lane: `buffer[vector][32]`. A function for each shape moves
the lanes of a pattern; `load_each` and `store_each` move lanes that lie anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from memlab.device.emulator.codegen.flow import bit_loop, counted_loop
from memlab.device.emulator.codegen.layout import (
    PATTERN,
    SITE,
    element_pointer,
    field_pointer,
    load_field,
)
from memlab.device.emulator.codegen.runtime_parts import (
    ALL_LANES,
    I1,
    I8,
    I32,
    I64,
    POINTER,
    begin,
    call,
    constant_vector,
    fill_bytes,
    lanes_of,
    require,
    stack_room,
)
from memlab.device.emulator.isa.values import intrinsic
from memlab.device.properties import WARP_SIZE

SHAPES = tuple(
    (element_bytes, vector)
    for element_bytes in (1, 2, 4, 8, 16)
    for vector in (1, 2, 4, 8)
    if element_bytes * vector <= 32
)
"""Bytes of an element and elements per lane that an access can have."""

Direction = Literal["load", "store"]


def add_copy_functions(module: ir.Module) -> None:
    """Add the functions to the runtime's module."""
    directions: tuple[Direction, ...] = ("load", "store")
    for direction in directions:
        for shape in SHAPES:
            _add_copy(module, direction, *shape)
        _add_copy_each(module, direction)


def call_copy(
    b: ir.IRBuilder, direction: Direction, site: ir.Value, arguments: Sequence[ir.Value]
) -> None:
    """Move the lanes of an access of any shape, and return 0; `arguments` as for `load_4x2`."""
    element = b.cttz(load_field(b, site, SITE, "element_bytes"), I1(1))
    vector = b.cttz(load_field(b, site, SITE, "vector"), I1(1))
    end = b.append_basic_block("end")
    switch = b.switch(b.add(b.shl(element, I32(2)), vector), end)
    for element_bytes, count in SHAPES:
        block = b.append_basic_block("copy")
        number = 4 * (element_bytes.bit_length() - 1) + count.bit_length() - 1
        switch.add_case(I32(number), block)
        b.position_at_end(block)
        b.ret(call(b, f"{direction}_{element_bytes}x{count}", *arguments))
    b.position_at_end(end)
    b.ret(I32(0))


@dataclass(frozen=True)
class _Shape:
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
    def word(self) -> ir.IntType:
        """The type of a word."""
        return ir.IntType(8 * self.bytes // self.words)

    @property
    def element(self) -> ir.Type:
        """The type of an element."""
        return self.word if self.words == 1 else ir.VectorType(self.word, self.words)

    @property
    def chunk(self) -> ir.VectorType:
        """All elements of a lane."""
        return ir.VectorType(self.word, self.words * self.vector)

    @property
    def row(self) -> ir.VectorType:
        """One element of every lane: a row of the buffer."""
        return ir.VectorType(self.word, WARP_SIZE * self.words)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return WARP_SIZE * self.bytes

    @property
    def whole(self) -> ir.VectorType:
        """All elements of every lane, lane after lane."""
        return ir.VectorType(self.word, WARP_SIZE * self.words * self.vector)

    @property
    def has_masked_copy(self) -> bool:
        """Whether the machine has instructions that move some of the lanes of `whole`."""
        return self.word.width >= 32 and self.words * self.vector <= 4


def _add_copy(module: ir.Module, direction: Direction, element_bytes: int, vector: int) -> None:
    """`load_4x2(host, pattern, lane_bytes, mask, buffer)` and the like: move one shape.

    `host` is the host address of the first active lane's elements. A lane's own memory lies
    `lane_bytes` behind that of the lane before it; that is 0 for memory that lanes share.
    """
    shape = _Shape(element_bytes, vector)
    name = f"{direction}_{element_bytes}x{vector}"
    b = begin(module, name, I32, I64, POINTER, I64, I32, POINTER)
    host, pattern, lane_bytes, mask, buffer = b.function.args
    uniform, contiguous, partial, scattered = (
        b.append_basic_block(case) for case in ("uniform", "contiguous", "partial", "scattered")
    )
    lane_0 = b.sub(host, b.mul(b.zext(b.cttz(mask, I1(1)), I64), lane_bytes))
    step = b.add(load_field(b, pattern, PATTERN, "stride"), lane_bytes)
    switch = b.switch(step, scattered)
    switch.add_case(I64(0), uniform)
    switch.add_case(I64(shape.size), contiguous)
    b.position_at_end(uniform)
    copy_uniform = _load_uniform if direction == "load" else _store_uniform
    copy_uniform(b, shape, b.inttoptr(host, POINTER), mask, buffer)
    b.ret(I32(0))
    b.position_at_end(contiguous)
    require(b, b.icmp_signed("==", mask, I32(ALL_LANES)), partial)
    pointer = b.inttoptr(host, POINTER)
    if direction == "load":
        _store_rows(b, shape, buffer, b.load(pointer, typ=shape.whole, align=1))
    else:
        b.store(_load_rows(b, shape, buffer), pointer, align=1)
    b.ret(I32(0))
    b.position_at_end(partial)
    if shape.has_masked_copy:
        _copy_masked(b, direction, shape)
        b.ret(I32(0))
    else:
        b.branch(scattered)
    b.position_at_end(scattered)
    copy_scattered = _load_scattered if direction == "load" else _store_scattered
    copy_scattered(b, shape, lane_0)
    b.ret(I32(0))


def _load_uniform(
    b: ir.IRBuilder, shape: _Shape, pointer: ir.Value, mask: ir.Value, buffer: ir.Value
) -> None:
    """All active lanes read the same address."""
    chunk = b.load(pointer, typ=shape.chunk, align=1)
    lanes = _spread(b, mask, shape.words)
    for number in range(shape.vector):
        first = number * shape.words
        order = [I32(first + word) for _ in range(WARP_SIZE) for word in range(shape.words)]
        row = b.shuffle_vector(chunk, chunk, constant_vector(order))
        row = b.select(lanes, row, ir.Constant(shape.row, None))
        b.store(row, _row_pointer(b, shape, buffer, number), align=1)


def _store_uniform(
    b: ir.IRBuilder, shape: _Shape, pointer: ir.Value, mask: ir.Value, buffer: ir.Value
) -> None:
    """All active lanes write to the same address: the highest one's values stay."""
    lane = b.zext(b.sub(I32(WARP_SIZE - 1), b.ctlz(mask, I1(1))), I64)
    for number in range(shape.vector):
        row = _row_pointer(b, shape, buffer, number)
        value = b.load(element_pointer(b, row, lane, shape.bytes), typ=shape.element, align=1)
        place = b.gep(pointer, [I64(number * shape.bytes)], source_etype=I8)
        b.store(value, place, align=1)


def _copy_masked(b: ir.IRBuilder, direction: Direction, shape: _Shape) -> None:
    """Move the active lanes of contiguous elements."""
    host, _, _, mask, buffer = b.function.args
    first_lane = b.zext(b.cttz(mask, I1(1)), I64)
    start = b.inttoptr(b.sub(host, b.mul(first_lane, I64(shape.size))), POINTER)
    lanes, whole = _spread(b, mask, shape.words * shape.vector), shape.whole
    name, suffix = f"llvm.masked.{direction}", f"v{whole.count}i{whole.element.width}.p0"
    if direction == "load":
        load = intrinsic(b, name, whole, [POINTER, I32, lanes.type, whole], suffix)
        values = b.call(load, [start, I32(1), lanes, ir.Constant(whole, None)])
        _store_rows(b, shape, buffer, values)
    else:
        store = intrinsic(b, name, ir.VoidType(), [whole, POINTER, I32, lanes.type], suffix)
        b.call(store, [_load_rows(b, shape, buffer), start, I32(1), lanes])


def _lane_pointer(b: ir.IRBuilder, lane_0: ir.Value, lane: ir.Value) -> ir.Value:
    """Where a lane's elements lie; `lane_0` is the first active lane's place, seen from lane 0."""
    _, pattern, lane_bytes, _, _ = b.function.args
    relative = field_pointer(b, pattern, PATTERN, "relative")
    distance = b.sext(b.load(element_pointer(b, relative, lane, 4), typ=I32), I64)
    return b.inttoptr(b.add(b.add(lane_0, distance), b.mul(lane, lane_bytes)), POINTER)


def _load_scattered(b: ir.IRBuilder, shape: _Shape, lane_0: ir.Value) -> None:
    """Every lane reads; an inactive one reads what lies at the first active lane's address."""
    *_, mask, buffer = b.function.args
    parts = [
        b.load(_lane_pointer(b, lane_0, I64(lane)), typ=shape.chunk, align=1)
        for lane in range(WARP_SIZE)
    ]
    while len(parts) > 1:
        parts = [_join(b, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    lanes = _spread(b, mask, shape.words * shape.vector)
    values = b.select(lanes, parts[0], ir.Constant(shape.whole, None))
    _store_rows(b, shape, buffer, values)


def _store_scattered(b: ir.IRBuilder, shape: _Shape, lane_0: ir.Value) -> None:
    """The active lanes write one by one, the lowest first."""
    *_, mask, buffer = b.function.args
    values = buffer
    if shape.vector > 1:
        values = stack_room(b, shape.whole)
        b.store(_load_rows(b, shape, buffer), values)

    def move(lane: ir.Value) -> None:
        place = element_pointer(b, values, lane, shape.size)
        chunk = b.load(place, typ=shape.chunk, align=1)
        b.store(chunk, _lane_pointer(b, lane_0, lane), align=1)

    with b.if_then(b.icmp_signed("==", mask, I32(ALL_LANES))):
        for number in range(WARP_SIZE):
            move(I64(number))
        b.ret(I32(0))
    with bit_loop(b, mask) as lane:
        move(lane)


def _spread(b: ir.IRBuilder, mask: ir.Value, times: int) -> ir.Value:
    """A mask as a predicate with so many elements per lane."""
    lanes = lanes_of(b, mask).ir
    if times == 1:
        return lanes
    order = [I32(number // times) for number in range(WARP_SIZE * times)]
    return b.shuffle_vector(lanes, lanes, constant_vector(order))


def _row_pointer(b: ir.IRBuilder, shape: _Shape, buffer: ir.Value, number: int) -> ir.Value:
    return b.gep(buffer, [I64(number * shape.row_bytes)], source_etype=I8)


def _store_rows(b: ir.IRBuilder, shape: _Shape, buffer: ir.Value, whole: ir.Value) -> None:
    """Store the elements of all lanes, lane after lane, as rows."""
    words, vector = shape.words, shape.vector
    for number in range(vector):
        order = [
            I32((lane * vector + number) * words + word)
            for lane in range(WARP_SIZE)
            for word in range(words)
        ]
        row = b.shuffle_vector(whole, whole, constant_vector(order))
        b.store(row, _row_pointer(b, shape, buffer, number), align=1)


def _load_rows(b: ir.IRBuilder, shape: _Shape, buffer: ir.Value) -> ir.Value:
    """The elements of all lanes, lane after lane, from rows."""
    rows = [
        b.load(_row_pointer(b, shape, buffer, number), typ=shape.row, align=1)
        for number in range(shape.vector)
    ]
    while len(rows) > 1:
        rows = [_join(b, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
    order = [
        I32(number * shape.row.count + lane * shape.words + word)
        for lane in range(WARP_SIZE)
        for number in range(shape.vector)
        for word in range(shape.words)
    ]
    return b.shuffle_vector(rows[0], rows[0], constant_vector(order))


def _join(b: ir.IRBuilder, first: ir.Value, second: ir.Value) -> ir.Value:
    """Two vectors one after the other."""
    order = [I32(place) for place in range(2 * first.type.count)]
    return b.shuffle_vector(first, second, constant_vector(order))


def _add_copy_each(module: ir.Module, direction: Direction) -> None:
    """`load_each(site, mask, pointers, buffer)`, `store_each(...)`: move lanes one by one."""
    b = begin(module, f"{direction}_each", ir.VoidType(), POINTER, I32, POINTER, POINTER)
    site, mask, pointers, buffer = b.function.args
    element_bytes = b.zext(load_field(b, site, SITE, "element_bytes"), I64)
    vector = b.zext(load_field(b, site, SITE, "vector"), I64)
    row_bytes = b.mul(element_bytes, I64(WARP_SIZE))
    if direction == "load":
        fill_bytes(b, buffer, b.mul(row_bytes, vector))
    with bit_loop(b, mask) as lane:
        start = b.load(element_pointer(b, pointers, lane, 8), typ=POINTER)
        with counted_loop(b, vector) as number:
            there = b.gep(start, [b.mul(number, element_bytes)], source_etype=I8)
            place = b.add(b.mul(number, row_bytes), b.mul(lane, element_bytes))
            here = b.gep(buffer, [place], source_etype=I8)
            source, target = (there, here) if direction == "load" else (here, there)
            with counted_loop(b, element_bytes) as byte:
                value = b.load(b.gep(source, [byte], source_etype=I8), typ=I8)
                b.store(value, b.gep(target, [byte], source_etype=I8))
    b.ret_void()
