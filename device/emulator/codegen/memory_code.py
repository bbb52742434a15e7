"""The runtime's memory accesses: resolved addresses, loads, stores, and pointers for atomics.

The functions serve all programs, so they are compiled once:

- `void resolve(context*, addresses*, site*, i32 mask, i64 warp)` completes an `ADDRESSES` record
  whose `address` was filled in; `mask` is not 0. The record serves all instructions that access the
  same state space by the same register, until the register or the active lanes change.
- `i32 load(context*, addresses*, site*, i32 mask, buffer*)` reads into `buffer[vector][32]`, whose
  items have the bytes of an element; inactive lanes get 0.
- `i32 store(context*, addresses*, site*, i32 mask, buffer*)` is the reverse; of several lanes at
  one address, the highest one's value stays.
- `i32 prepare_atomic(context*, addresses*, site*, i32 mask, i64 pointers[32])` gives the host
  address of each active lane's first element. Other lanes get no or any value.

`mask` has one or more of the lanes that were resolved. The last three count the access and return
0; on a fault, they note it in the context, move nothing, and return 1. No byte outside the arrays
is read or written, whatever the addresses are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from memlab.device.emulator.codegen.flow import bit_loop, counted_loop
from memlab.device.emulator.codegen.layout import (
    ADDRESSES,
    ARRAY,
    CONTEXT,
    FAULT,
    PATTERN,
    SEGMENT,
    SITE,
    SITE_KINDS,
    SPACES,
    element_pointer,
    field_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.pattern_code import (
    ADDRESS_LANES,
    ALL_LANES,
    I1,
    I8,
    I32,
    I64,
    POINTER,
    add_pattern_functions,
    begin,
    call,
    constant_vector,
    count_by_pattern,
    count_directly,
    fill_bytes,
    lanes_of,
    load_lanes,
    reduce,
    relative_addresses,
    relative_to_first,
    same_pattern,
    splat,
    stack_room,
)
from memlab.device.emulator.codegen.trace_code import add_trace_functions
from memlab.device.emulator.isa.address_space import GLOBAL_BASE, WINDOW_BYTES, WINDOWS
from memlab.device.emulator.isa.values import S64, Value, intrinsic, where
from memlab.device.properties import WARP_SIZE

MEMORY_FUNCTIONS = ("resolve", "load", "store", "prepare_atomic")
"""The functions that `add_memory_functions` adds for other code to call."""

SHAPES = tuple(
    (element_bytes, vector)
    for element_bytes in (1, 2, 4, 8, 16)
    for vector in (1, 2, 4, 8)
    if element_bytes * vector <= 32
)
"""Bytes of an element and elements per lane that an access can have."""

_GLOBAL, _GENERIC, _LOAD = SPACES.index("global"), SPACES.index("generic"), SITE_KINDS.index("load")
_WINDOW_BITS = WINDOW_BYTES.bit_length() - 1
_TOP_WINDOW = GLOBAL_BASE >> _WINDOW_BITS  # the other windows lie below, in the order of SPACES
assert [WINDOWS[name] >> _WINDOW_BITS for name in SPACES[: len(WINDOWS)]] == [
    _TOP_WINDOW - space for space in range(len(WINDOWS))
]
_NO_WINDOW = len(SPACES) - 1  # the group of lanes whose generic address lies in no window
_GROUPS = _NO_WINDOW + 1

Direction = Literal["load", "store"]


def add_memory_functions(module: ir.Module) -> None:
    """Add the functions to the runtime's module."""
    add_pattern_functions(module)
    add_trace_functions(module)
    _add_find_array(module)
    _add_resolve(module)
    _add_mark_written(module)
    _add_mark_pattern(module)
    _add_place_group(module)
    _add_count_group(module)
    _add_place_each(module)
    directions: tuple[Direction, ...] = ("load", "store")
    for direction in directions:
        for shape in SHAPES:
            _add_copy(module, direction, *shape)
        _add_copy_each(module, direction)
        _add_slow_access(module, direction)
        _add_access(module, direction)
    _add_prepare_atomic(module)


# --- Resolving addresses --------------------------------------------------------------------------


def _begin_exported(module: ir.Module, name: str, result: ir.Type) -> ir.IRBuilder:
    """Begin a function that other code calls."""
    last = I64 if name == "resolve" else POINTER
    b = begin(module, name, result, POINTER, POINTER, POINTER, I32, last)
    b.function.linkage = "external"
    return b


def _add_resolve(module: ir.Module) -> None:
    _add_resolve_far(module)
    _add_find_window(module)
    b = _begin_exported(module, "resolve", ir.VoidType())
    context, record, site, mask, warp = b.function.args
    store_field(b, b.zext(mask, I64), record, ADDRESSES, "mask")
    store_field(b, warp, record, ADDRESSES, "warp")
    first, relative = relative_to_first(b, record, mask)
    known = load_field(b, site, SITE, "pattern")
    compare, search, near, found, far = (
        b.append_basic_block(name) for name in ("compare", "search", "near", "found", "far")
    )
    b.cbranch(_is_null(b, known), search, compare)
    b.position_at_end(compare)
    b.cbranch(same_pattern(b, known, relative, mask), found, search)
    b.position_at_end(search)
    other = call(b, "find_pattern", context, record, mask)
    b.cbranch(_is_null(b, other), far, near)
    b.position_at_end(near)
    store_field(b, b.ptrtoint(other, I64), site, SITE, "pattern")
    b.branch(found)
    b.position_at_end(found)
    pattern = b.phi(POINTER)
    pattern.add_incoming(known, compare)
    pattern.add_incoming(other, near)
    space = b.sext(load_field(b, site, SITE, "space"), I64)
    fields = {
        "space": space,
        "first": first,
        "low": b.add(first, load_field(b, pattern, PATTERN, "low")),
        "high": b.add(first, load_field(b, pattern, PATTERN, "high")),
        "pattern": b.ptrtoint(pattern, I64),
        "version": load_field(b, pattern, PATTERN, "version"),
    }
    for name, value in fields.items():
        store_field(b, value, record, ADDRESSES, name)
    generic, direct, place = (b.append_basic_block(name) for name in ("generic", "direct", "place"))
    b.cbranch(b.icmp_signed("==", space, I64(_GENERIC)), generic, direct)
    b.position_at_end(generic)
    window = call(b, "find_window", record)
    b.cbranch(b.icmp_signed(">=", window, I64(0)), place, far)
    b.position_at_end(direct)
    b.branch(place)
    b.position_at_end(place)
    actual = b.phi(I64)
    actual.add_incoming(space, direct)
    actual.add_incoming(window, generic)
    base = _warp_base(b, context, _segment(b, context, actual), warp)
    store_field(b, base, record, ADDRESSES, "base")
    b.ret_void()
    b.position_at_end(far)
    call(b, "resolve_far", record, site, mask)
    b.ret_void()


def _add_resolve_far(module: ir.Module) -> None:
    """`resolve_far(addresses*, site, mask)`: resolve addresses that have no pattern."""
    b = begin(module, "resolve_far", ir.VoidType(), POINTER, POINTER, I32, seldom=True)
    record, site, mask = b.function.args
    first, _ = relative_to_first(b, record, mask)
    active, address = lanes_of(b, mask), load_lanes(b, record)
    fields = {
        "space": b.sext(load_field(b, site, SITE, "space"), I64),
        "first": first,
        "low": reduce(where(active, address, S64.most), "smin"),
        "high": reduce(where(active, address, S64.least), "smax"),
        "pattern": I64(0),
        "base": I64(0),
    }
    for name, value in fields.items():
        store_field(b, value, record, ADDRESSES, name)
    b.ret_void()


def _add_find_window(module: ir.Module) -> None:
    """`find_window(addresses*)`: the state space of resolved generic addresses.

    They become addresses of that space. The result is -1 if they lie in several spaces or in none.
    """
    b = begin(module, "find_window", I64, POINTER)
    (record,) = b.function.args
    low, high = (load_field(b, record, ADDRESSES, name) for name in ("low", "high"))
    group = _window_group(b, low)
    with b.if_then(b.icmp_signed("!=", group, _window_group(b, high)), likely=False):
        b.ret(I64(-1))
    with b.if_then(b.icmp_signed("==", group, I64(_NO_WINDOW)), likely=False):
        b.ret(I64(-1))
    store_field(b, group, record, ADDRESSES, "space")
    window = _window_start(b, group)
    for name in ("first", "low", "high"):
        moved = b.sub(load_field(b, record, ADDRESSES, name), window)
        store_field(b, moved, record, ADDRESSES, name)
    b.ret(group)


def _is_null(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    return b.icmp_unsigned("==", b.ptrtoint(pointer, I64), I64(0))


def _window_group(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The state space of a generic address; `_NO_WINDOW` where it lies in none."""
    below = b.sub(I64(_TOP_WINDOW), b.ashr(address, I64(_WINDOW_BITS)))
    return b.select(b.icmp_unsigned("<", below, I64(len(WINDOWS))), below, I64(_NO_WINDOW))


def _window_start(b: ir.IRBuilder, group: ir.Value) -> ir.Value:
    """The generic address of a state space's first byte; 0 for global memory."""
    start = b.shl(b.sub(I64(_TOP_WINDOW), group), I64(_WINDOW_BITS))
    plain = b.or_(
        b.icmp_signed("==", group, I64(_GLOBAL)), b.icmp_signed("==", group, I64(_NO_WINDOW))
    )
    return b.select(plain, I64(0), start)


def _segment(b: ir.IRBuilder, context: ir.Value, space: ir.Value) -> ir.Value:
    segments = field_pointer(b, context, CONTEXT, "segments")
    return element_pointer(b, segments, space, SEGMENT.itemsize)


def _warp_base(b: ir.IRBuilder, context: ir.Value, segment: ir.Value, warp: ir.Value) -> ir.Value:
    """The host address of address 0 of a segment for the first lane of a warp."""
    block = b.udiv(warp, load_field(b, context, CONTEXT, "warps_per_block"))
    of_block = b.mul(block, load_field(b, segment, SEGMENT, "block_bytes"))
    lanes = b.mul(warp, I64(WARP_SIZE))
    of_warp = b.mul(lanes, load_field(b, segment, SEGMENT, "lane_bytes"))
    base = b.ptrtoint(load_field(b, segment, SEGMENT, "base"), I64)
    return b.add(base, b.add(of_block, of_warp))


def _add_find_array(module: ir.Module) -> None:
    """`find_array(context, address)`: the last array that starts at or before it.

    Its index, or -1.
    """
    b = begin(module, "find_array", I64, POINTER, I64, seldom=True)
    context, address = b.function.args
    arrays = load_field(b, context, CONTEXT, "arrays")
    count = load_field(b, context, CONTEXT, "array_count")
    entry = b.block
    head, body, end = (b.append_basic_block(name) for name in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    # The arrays before `low` start at or before the address, those from `high` on behind it.
    low, high = b.phi(I64), b.phi(I64)
    b.cbranch(b.icmp_signed("<", low, high), body, end)
    b.position_at_end(body)
    middle = b.ashr(b.add(low, high), I64(1))
    start = load_field(b, element_pointer(b, arrays, middle, ARRAY.itemsize), ARRAY, "start")
    before = b.icmp_signed("<=", start, address)
    for bound, values in (
        (low, (I64(0), b.select(before, b.add(middle, I64(1)), low))),
        (high, (count, b.select(before, high, middle))),
    ):
        bound.add_incoming(values[0], entry)
        bound.add_incoming(values[1], b.block)
    b.branch(head)
    b.position_at_end(end)
    b.ret(b.sub(low, I64(1)))


# --- The common case: one pattern, and one array --------------------------------------------------


@dataclass(frozen=True)
class _Checked:
    """An access of which all lanes may be carried out.

    Attributes:
        pattern: Its pattern.
        host: Host address of the first active lane's element.
        lane_bytes: What a lane's number is multiplied by in the host address of the lane.
        first: The first active lane's address in the state space, with the offset.
        space: The state space.
    """

    pattern: ir.Value
    host: ir.Value
    lane_bytes: ir.Value
    first: ir.Value
    space: ir.Value


def _check_and_count(b: ir.IRBuilder, kind: str, slow_access: str) -> _Checked:
    """Check the access of a warp and count it; the function leaves what is unusual to another."""
    slow = b.append_basic_block("slow")
    with b.goto_block(slow):
        b.ret(call(b, slow_access, *b.function.args))
    context, record, site, mask, _ = b.function.args
    pattern = load_field(b, record, ADDRESSES, "pattern")
    resolved_mask = load_field(b, record, ADDRESSES, "mask")
    same_mask = b.icmp_signed("==", resolved_mask, b.zext(mask, I64))
    _require(b, b.and_(b.not_(_is_null(b, pattern)), same_mask), slow)
    # Another pattern may have taken the place of this one.
    version = load_field(b, record, ADDRESSES, "version")
    _require(b, b.icmp_signed("==", version, load_field(b, pattern, PATTERN, "version")), slow)
    space = load_field(b, record, ADDRESSES, "space")
    segment = _segment(b, context, space)
    first = b.add(load_field(b, record, ADDRESSES, "first"), load_field(b, site, SITE, "offset"))
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    ored = b.zext(load_field(b, pattern, PATTERN, "ored"), I64)
    odd = b.and_(b.or_(first, ored), b.sub(size, I64(1)))
    _require(b, b.icmp_signed("==", odd, I64(0)), slow)
    if kind != "load":
        read_only = load_field(b, segment, SEGMENT, "read_only")
        _require(b, b.icmp_signed("==", read_only, I64(0)), slow)
    _check_bounds(b, context, record, site, segment, slow)
    count_by_pattern(b, context, site, record, pattern)
    base = b.ptrtoint(load_field(b, record, ADDRESSES, "base"), I64)
    lane_bytes = load_field(b, segment, SEGMENT, "lane_bytes")
    first_lane = b.zext(b.cttz(mask, I1(1)), I64)
    host = b.add(b.add(base, first), b.mul(first_lane, lane_bytes))
    return _Checked(pattern, host, lane_bytes, first, space)


def _require(b: ir.IRBuilder, condition: ir.Value, otherwise: ir.Block) -> None:
    """Go on only where a condition holds."""
    passed = b.append_basic_block("passed")
    b.cbranch(condition, passed, otherwise)
    b.position_at_end(passed)


def _check_bounds(
    b: ir.IRBuilder,
    context: ir.Value,
    record: ir.Value,
    site: ir.Value,
    segment: ir.Value,
    slow: ir.Block,
) -> None:
    """Go to `slow` unless all lanes access one segment, or one array of global memory."""
    in_global, remembered, search, in_segment, inside = (
        b.append_basic_block(name)
        for name in ("in_global", "remembered", "search", "in_segment", "inside")
    )
    offset = load_field(b, site, SITE, "offset")
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    low = b.add(load_field(b, record, ADDRESSES, "low"), offset)
    high = b.add(load_field(b, record, ADDRESSES, "high"), offset)

    def is_inside(start: ir.Value, end: ir.Value) -> ir.Value:
        # The addresses span less than 2^31 bytes: with low <= high, none of them wraps around.
        in_order = b.icmp_signed("<=", low, high)
        ends_inside = b.icmp_signed("<=", high, b.sub(end, size))
        return b.and_(b.icmp_signed("<=", start, low), b.and_(in_order, ends_inside))

    def is_in_array(index: ir.Value) -> ir.Value:
        arrays = load_field(b, context, CONTEXT, "arrays")
        array = element_pointer(b, arrays, index, ARRAY.itemsize)
        start, end = (load_field(b, array, ARRAY, name) for name in ("start", "end"))
        return is_inside(start, end)

    space = load_field(b, record, ADDRESSES, "space")
    b.cbranch(b.icmp_signed("==", space, I64(_GLOBAL)), in_global, in_segment)
    b.position_at_end(in_segment)
    b.cbranch(is_inside(I64(0), load_field(b, segment, SEGMENT, "size")), inside, slow)
    b.position_at_end(in_global)
    index = load_field(b, site, SITE, "array")
    count = load_field(b, context, CONTEXT, "array_count")
    b.cbranch(b.icmp_unsigned("<", index, count), remembered, search)
    b.position_at_end(remembered)
    b.cbranch(is_in_array(index), inside, search)
    b.position_at_end(search)
    index = call(b, "find_array", context, low)
    _require(b, b.icmp_signed(">=", index, I64(0)), slow)
    store_field(b, index, site, SITE, "array")
    b.cbranch(is_in_array(index), inside, slow)
    b.position_at_end(inside)


def _add_access(module: ir.Module, direction: Direction) -> None:
    """`load` or `store`."""
    b = _begin_exported(module, direction, I32)
    context, _, site, mask, buffer = b.function.args
    checked = _check_and_count(b, direction, f"{direction}_slow")
    if direction == "store":
        _mark_warp(b, context, site, mask, checked)
    arguments = (checked.host, checked.pattern, checked.lane_bytes, mask, buffer)
    end = b.append_basic_block("end")
    switch = b.switch(_shape_number(b, site), end)
    for shape in SHAPES:
        block = b.append_basic_block(f"copy.{shape[0]}x{shape[1]}")
        switch.add_case(I32(_number_of_shape(*shape)), block)
        b.position_at_end(block)
        b.ret(call(b, _copy_name(direction, *shape), *arguments))
    b.position_at_end(end)
    b.ret(I32(0))


def _add_slow_access(module: ir.Module, direction: Direction) -> None:
    """`load_slow(...)`, `store_slow(...)`: an access, whatever its addresses are."""
    b = begin(module, f"{direction}_slow", I32, POINTER, POINTER, POINTER, I32, POINTER)
    b.function.attributes.add("noinline")
    context, record, site, mask, buffer = b.function.args
    pointers = stack_room(b, ADDRESS_LANES)
    with b.if_then(_failed(b, call(b, "place_each", context, record, site, mask, pointers))):
        b.ret(I32(1))
    call(b, f"{direction}_each", site, mask, pointers, buffer)
    b.ret(I32(0))


def _add_prepare_atomic(module: ir.Module) -> None:
    b = _begin_exported(module, "prepare_atomic", I32)
    context, _, site, mask, pointers = b.function.args
    checked = _check_and_count(b, "atomic", "place_each")
    _mark_warp(b, context, site, mask, checked)
    first_lane = b.zext(b.cttz(mask, I1(1)), I64)
    start = b.sub(checked.host, b.mul(first_lane, checked.lane_bytes))
    places = relative_addresses(b, checked.pattern) + splat(b, start)
    places = places + _lane_numbers(b) * splat(b, checked.lane_bytes)
    b.store(places.ir, pointers, align=8)
    b.ret(I32(0))


def _lane_numbers(b: ir.IRBuilder) -> Value:
    return Value(b, constant_vector([I64(lane) for lane in range(WARP_SIZE)]), S64)


def _failed(b: ir.IRBuilder, result: ir.Value) -> ir.Value:
    return b.icmp_signed("!=", result, I32(0))


# --- Copying between memory and buffers -----------------------------------------------------------


def _copy_name(direction: Direction, element_bytes: int, vector: int) -> str:
    return f"{direction}_{element_bytes}x{vector}"


def _number_of_shape(element_bytes: int, vector: int) -> int:
    return 4 * (element_bytes.bit_length() - 1) + vector.bit_length() - 1


def _shape_number(b: ir.IRBuilder, site: ir.Value) -> ir.Value:
    """What `_number_of_shape` gives for an instruction."""
    element = b.cttz(load_field(b, site, SITE, "element_bytes"), I1(1))
    return b.add(b.shl(element, I32(2)), b.cttz(load_field(b, site, SITE, "vector"), I1(1)))


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

    See `_Checked` for the first three arguments.
    """
    shape = _Shape(element_bytes, vector)
    name = _copy_name(direction, element_bytes, vector)
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
    _require(b, b.icmp_signed("==", mask, I32(ALL_LANES)), partial)
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


# --- Marks of written units -----------------------------------------------------------------------


def _add_mark_written(module: ir.Module) -> None:
    """`mark_written(context, addresses, lanes, size)`: mark what lanes store to global memory.

    `addresses` are an array of 32; each lane stores `size` bytes.
    """
    b = begin(module, "mark_written", ir.VoidType(), POINTER, POINTER, I32, I64)
    context, _, _, size = b.function.args
    shift = load_field(b, context, CONTEXT, "unit_shift")
    units = b.ptrtoint(load_field(b, context, CONTEXT, "units_written"), I64)
    one = b.append_basic_block("one")
    switch = b.switch(b.lshr(size, shift), one)
    b.position_at_end(one)
    _mark_lanes(b, units, shift, 1)
    for count in (2, 4, 8, 16, 32):
        block = b.append_basic_block(f"marks{count}")
        switch.add_case(I64(count), block)
        b.position_at_end(block)
        _mark_lanes(b, units, shift, count)


def _mark_lanes(b: ir.IRBuilder, units: ir.Value, shift: ir.Value, count: int) -> None:
    """Mark so many units from each lane's address on, and return."""
    _, addresses, lanes, _ = b.function.args
    marks = ir.Constant(ir.VectorType(I8, count), [I8(1)] * count)

    def mark(lane: ir.Value) -> None:
        address = b.load(element_pointer(b, addresses, lane, 8), typ=I64)
        unit = b.lshr(b.sub(address, I64(GLOBAL_BASE)), shift)
        b.store(marks, b.inttoptr(b.add(units, unit), POINTER), align=1)

    with b.if_then(b.icmp_signed("==", lanes, I32(ALL_LANES))):
        for number in range(WARP_SIZE):
            mark(I64(number))
        b.ret_void()
    with bit_loop(b, lanes) as lane:
        mark(lane)
    b.ret_void()


def _mark_warp(
    b: ir.IRBuilder, context: ir.Value, site: ir.Value, mask: ir.Value, checked: _Checked
) -> None:
    """Mark what the lanes of a warp store to global memory."""
    with b.if_then(b.icmp_signed("==", checked.space, I64(_GLOBAL))):
        size = b.zext(load_field(b, site, SITE, "size"), I64)
        stride = load_field(b, checked.pattern, PATTERN, "stride")
        full = b.icmp_signed("==", mask, I32(ALL_LANES))
        contiguous = b.and_(full, b.icmp_signed("==", stride, size))
        with b.if_else(contiguous) as (then, otherwise):
            with then:
                shift = load_field(b, context, CONTEXT, "unit_shift")
                start = b.sub(checked.first, I64(GLOBAL_BASE))
                last = b.add(start, b.sub(b.mul(size, I64(WARP_SIZE)), I64(1)))
                unit = b.lshr(start, shift)
                count = b.add(b.sub(b.lshr(last, shift), unit), I64(1))
                units = load_field(b, context, CONTEXT, "units_written")
                fill_bytes(b, b.gep(units, [unit], source_etype=I8), count, 1)
            with otherwise:
                call(b, "mark_pattern", context, checked.pattern, checked.first, mask, size)


def _add_mark_pattern(module: ir.Module) -> None:
    """`mark_pattern(context, pattern, first, lanes, size)`: as `mark_written`, of a pattern."""
    types = (POINTER, POINTER, I64, I32, I64)
    b = begin(module, "mark_pattern", ir.VoidType(), *types, seldom=True)
    context, pattern, first, lanes, size = b.function.args
    addresses = stack_room(b, ADDRESS_LANES)
    b.store((relative_addresses(b, pattern) + splat(b, first)).ir, addresses)
    call(b, "mark_written", context, addresses, lanes, size)
    b.ret_void()


# --- The general case: lane by lane ---------------------------------------------------------------


def _add_place_each(module: ir.Module) -> None:
    """`place_each(context, addresses, site, mask, pointers)`: find the element of each lane.

    The lanes may lie in several state spaces and arrays. As `prepare_atomic` for any access.
    """
    b = begin(module, "place_each", I32, POINTER, POINTER, POINTER, I32, POINTER)
    b.function.attributes.add("noinline")
    context, record, site, mask, pointers = b.function.args
    group_masks = ir.ArrayType(I32, _GROUPS)
    groups, moved = stack_room(b, group_masks), stack_room(b, ADDRESS_LANES)
    b.store(ir.Constant(group_masks, None), groups)
    b.store(ir.Constant(ADDRESS_LANES, None), moved)
    warp = load_field(b, record, ADDRESSES, "warp")
    offset = load_field(b, site, SITE, "offset")
    own_space = b.sext(load_field(b, site, SITE, "space"), I64)
    generic = b.icmp_signed("==", own_space, I64(_GENERIC))
    held = field_pointer(b, record, ADDRESSES, "address")
    with bit_loop(b, mask) as lane:
        address = b.add(b.load(element_pointer(b, held, lane, 8), typ=I64), offset)
        group = b.select(generic, _window_group(b, address), own_space)
        window = b.select(generic, _window_start(b, group), I64(0))
        b.store(b.sub(address, window), element_pointer(b, moved, lane, 8))
        members = element_pointer(b, groups, group, 4)
        bit = b.shl(I32(1), b.trunc(lane, I32))
        b.store(b.or_(b.load(members, typ=I32), bit), members)

    def space_of(group: ir.Value) -> ir.Value:
        return b.select(b.icmp_signed("==", group, I64(_NO_WINDOW)), I64(_GLOBAL), group)

    with counted_loop(b, I64(_GROUPS)) as group:
        lanes = b.load(element_pointer(b, groups, group, 4), typ=I32)
        with b.if_then(b.icmp_signed("!=", lanes, I32(0))):
            arguments = (context, site, space_of(group), lanes, moved, warp)
            with b.if_then(_failed(b, call(b, "place_group", *arguments, pointers))):
                call(b, "note_fault", *arguments)
                b.ret(I32(1))
    with counted_loop(b, I64(_GROUPS)) as group:
        lanes = b.load(element_pointer(b, groups, group, 4), typ=I32)
        with b.if_then(b.icmp_signed("!=", lanes, I32(0))):
            call(b, "count_group", context, site, space_of(group), lanes, moved, warp)
    b.ret(I32(0))


_GROUP_ARGUMENTS = (POINTER, POINTER, I64, I32, POINTER, I64)
"""Context, instruction, state space, lanes, their addresses there with the offset, warp."""


def _add_place_group(module: ir.Module) -> None:
    """`place_group(..., pointers)`: check the lanes in one state space, and find their elements.

    Returns 1 where a lane is at fault.
    """
    b = begin(module, "place_group", I32, *_GROUP_ARGUMENTS, POINTER)
    context, site, space, lanes, addresses, warp, pointers = b.function.args
    segment = _segment(b, context, space)
    base = _warp_base(b, context, segment, warp)
    lane_bytes = load_field(b, segment, SEGMENT, "lane_bytes")
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    kind = load_field(b, site, SITE, "kind")
    read_only = load_field(b, segment, SEGMENT, "read_only")
    fault = b.append_basic_block("fault")

    loads = b.icmp_signed("==", kind, I32(_LOAD))
    _require(b, b.or_(loads, b.icmp_signed("==", read_only, I64(0))), fault)
    with bit_loop(b, lanes) as lane:
        address = b.load(element_pointer(b, addresses, lane, 8), typ=I64)
        odd = b.and_(address, b.sub(size, I64(1)))
        _require(b, b.icmp_signed("==", odd, I64(0)), fault)
        with b.if_else(b.icmp_signed("==", space, I64(_GLOBAL))) as (then, otherwise):
            with then:
                index = call(b, "find_array", context, address)
                _require(b, b.icmp_signed(">=", index, I64(0)), fault)
                arrays = load_field(b, context, CONTEXT, "arrays")
                array = element_pointer(b, arrays, index, ARRAY.itemsize)
                end = load_field(b, array, ARRAY, "end")
                _require(b, b.icmp_signed("<=", address, b.sub(end, size)), fault)
            with otherwise:
                _require(b, b.icmp_signed(">=", address, I64(0)), fault)
                end = load_field(b, segment, SEGMENT, "size")
                _require(b, b.icmp_signed("<=", address, b.sub(end, size)), fault)
        place = b.add(b.add(base, address), b.mul(lane, lane_bytes))
        b.store(place, element_pointer(b, pointers, lane, 8))
    b.ret(I32(0))
    b.position_at_end(fault)
    b.ret(I32(1))
    _add_note_fault(module)


def _add_note_fault(module: ir.Module) -> None:
    """`note_fault(...)`: keep the fault if it is the first, by instruction and then by warp."""
    b = begin(module, "note_fault", ir.VoidType(), *_GROUP_ARGUMENTS)
    context, site, space, lanes, addresses, warp = b.function.args
    fault = field_pointer(b, context, CONTEXT, "fault")
    index = load_field(b, site, SITE, "index")
    known = load_field(b, fault, FAULT, "index")
    lower = b.icmp_signed("<", warp, load_field(b, fault, FAULT, "warp"))
    first = b.or_(
        b.or_(b.icmp_signed("<", known, I64(0)), b.icmp_signed("<", index, known)),
        b.and_(b.icmp_signed("==", index, known), lower),
    )
    with b.if_then(first):
        fields = {"index": index, "warp": warp, "space": space, "mask": b.zext(lanes, I64)}
        for name, value in fields.items():
            store_field(b, value, fault, FAULT, name)
        target = field_pointer(b, fault, FAULT, "address")
        b.store(load_lanes(b, addresses).ir, target, align=8)
    b.ret_void()


def _add_count_group(module: ir.Module) -> None:
    """`count_group(...)`: count the access of some lanes, and mark what they store."""
    b = begin(module, "count_group", ir.VoidType(), *_GROUP_ARGUMENTS)
    context, site, space, lanes, addresses, warp = b.function.args
    lane = b.zext(b.cttz(lanes, I1(1)), I64)
    first = b.load(element_pointer(b, addresses, lane, 8), typ=I64)
    relative = where(lanes_of(b, lanes), load_lanes(b, addresses) - splat(b, first), 0)
    start = b.sub(first, load_field(b, site, SITE, "offset"))
    count_directly(b, context, site, space, warp, start, relative)
    stores = b.icmp_signed("!=", load_field(b, site, SITE, "kind"), I32(_LOAD))
    with b.if_then(b.and_(stores, b.icmp_signed("==", space, I64(_GLOBAL)))):
        size = b.zext(load_field(b, site, SITE, "size"), I64)
        call(b, "mark_written", context, addresses, lanes, size)
    b.ret_void()


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
