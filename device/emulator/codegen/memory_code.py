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

The common case is written here: the lanes have one pattern, and lie in one segment or one array of
global memory. `lane_code` takes all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from memlab.device.emulator.codegen.copy_code import (
    Direction,
    add_copy_functions,
    call_copy,
)
from memlab.device.emulator.codegen.lane_code import (
    GENERIC,
    GLOBAL,
    NO_WINDOW,
    add_lane_functions,
    segment_of,
    warp_base,
    window_group,
    window_start,
)
from memlab.device.emulator.codegen.layout import (
    ADDRESSES,
    ARRAY,
    CONTEXT,
    PATTERN,
    SEGMENT,
    SITE,
    element_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.pattern_code import (
    add_pattern_functions,
    count_by_pattern,
    relative_addresses,
    relative_to_first,
    same_pattern,
)
from memlab.device.emulator.codegen.runtime_parts import (
    ADDRESS_LANES,
    I1,
    I32,
    I64,
    POINTER,
    begin,
    call,
    failed,
    is_null,
    lane_numbers,
    lanes_of,
    load_lanes,
    reduce,
    require,
    splat,
    stack_room,
)
from memlab.device.emulator.codegen.trace_code import add_trace_functions
from memlab.device.emulator.codegen.use_code import (
    add_mark_functions,
    mark_pattern,
    note_use,
)
from memlab.device.emulator.isa.values import S64, where

MEMORY_FUNCTIONS = ("resolve", "load", "store", "prepare_atomic")
"""The functions that `add_memory_functions` adds for other code to call."""


def add_memory_functions(module: ir.Module) -> None:
    """Add these functions, and those that they call, to the runtime's module."""
    add_pattern_functions(module)
    add_trace_functions(module)
    add_mark_functions(module)
    add_lane_functions(module)
    add_copy_functions(module)
    _add_resolve(module)
    directions: tuple[Direction, ...] = ("load", "store")
    for direction in directions:
        _add_slow_access(module, direction)
        _add_access(module, direction)
    _add_prepare_atomic(module)


def _begin_exported(module: ir.Module, name: str, result: ir.Type) -> ir.IRBuilder:
    """Begin a function that other code calls."""
    last = I64 if name == "resolve" else POINTER
    b = begin(module, name, result, POINTER, POINTER, POINTER, I32, last)
    b.function.linkage = "external"
    return b


# --- Resolving addresses --------------------------------------------------------------------------


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
    b.cbranch(is_null(b, known), search, compare)
    b.position_at_end(compare)
    b.cbranch(same_pattern(b, known, relative, mask), found, search)
    b.position_at_end(search)
    other = call(b, "find_pattern", context, record, mask)
    b.cbranch(is_null(b, other), far, near)
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
    b.cbranch(b.icmp_signed("==", space, I64(GENERIC)), generic, direct)
    b.position_at_end(generic)
    window = call(b, "find_window", record)
    b.cbranch(b.icmp_signed(">=", window, I64(0)), place, far)
    b.position_at_end(direct)
    b.branch(place)
    b.position_at_end(place)
    actual = b.phi(I64)
    actual.add_incoming(space, direct)
    actual.add_incoming(window, generic)
    base = warp_base(b, context, segment_of(b, context, actual), warp)
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
    group = window_group(b, low)
    with b.if_then(b.icmp_signed("!=", group, window_group(b, high)), likely=False):
        b.ret(I64(-1))
    with b.if_then(b.icmp_signed("==", group, I64(NO_WINDOW)), likely=False):
        b.ret(I64(-1))
    store_field(b, group, record, ADDRESSES, "space")
    window = window_start(b, group)
    for name in ("first", "low", "high"):
        moved = b.sub(load_field(b, record, ADDRESSES, name), window)
        store_field(b, moved, record, ADDRESSES, name)
    b.ret(group)


# --- Accesses -------------------------------------------------------------------------------------


def _add_access(module: ir.Module, direction: Direction) -> None:
    """`load` or `store`."""
    b = _begin_exported(module, direction, I32)
    context, _, site, mask, buffer = b.function.args
    checked = _check_and_count(b, direction, f"{direction}_slow")
    if direction == "store":
        _mark_warp(b, context, site, mask, checked)
    arguments = (checked.host, checked.pattern, checked.lane_bytes, mask, buffer)
    call_copy(b, direction, site, arguments)


def _add_slow_access(module: ir.Module, direction: Direction) -> None:
    """`load_slow(...)`, `store_slow(...)`: an access, whatever its addresses are."""
    b = begin(module, f"{direction}_slow", I32, POINTER, POINTER, POINTER, I32, POINTER)
    b.function.attributes.add("noinline")
    context, record, site, mask, buffer = b.function.args
    pointers = stack_room(b, ADDRESS_LANES)
    with b.if_then(failed(b, call(b, "place_each", context, record, site, mask, pointers))):
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
    places = places + lane_numbers(b) * splat(b, checked.lane_bytes)
    b.store(places.ir, pointers, align=8)
    b.ret(I32(0))


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
    require(b, b.and_(b.not_(is_null(b, pattern)), same_mask), slow)
    # Another pattern may have taken the place of this one.
    version = load_field(b, record, ADDRESSES, "version")
    require(b, b.icmp_signed("==", version, load_field(b, pattern, PATTERN, "version")), slow)
    space = load_field(b, record, ADDRESSES, "space")
    segment = segment_of(b, context, space)
    first = b.add(load_field(b, record, ADDRESSES, "first"), load_field(b, site, SITE, "offset"))
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    ored = b.zext(load_field(b, pattern, PATTERN, "ored"), I64)
    odd = b.and_(b.or_(first, ored), b.sub(size, I64(1)))
    require(b, b.icmp_signed("==", odd, I64(0)), slow)
    if kind != "load":
        read_only = load_field(b, segment, SEGMENT, "read_only")
        require(b, b.icmp_signed("==", read_only, I64(0)), slow)
    _check_bounds(b, context, record, site, segment, slow)
    count_by_pattern(b, context, site, record, pattern)
    base = b.ptrtoint(load_field(b, record, ADDRESSES, "base"), I64)
    lane_bytes = load_field(b, segment, SEGMENT, "lane_bytes")
    first_lane = b.zext(b.cttz(mask, I1(1)), I64)
    host = b.add(b.add(base, first), b.mul(first_lane, lane_bytes))
    return _Checked(pattern, host, lane_bytes, first, space)


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
    b.cbranch(b.icmp_signed("==", space, I64(GLOBAL)), in_global, in_segment)
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
    require(b, b.icmp_signed(">=", index, I64(0)), slow)
    store_field(b, index, site, SITE, "array")
    b.cbranch(is_in_array(index), inside, slow)
    b.position_at_end(inside)
    with b.if_then(b.icmp_signed("==", space, I64(GLOBAL))):
        note_use(b, context, site, load_field(b, site, SITE, "array"))


def _mark_warp(
    b: ir.IRBuilder, context: ir.Value, site: ir.Value, mask: ir.Value, checked: _Checked
) -> None:
    """Mark what the lanes of a warp store to global memory."""
    with b.if_then(b.icmp_signed("==", checked.space, I64(GLOBAL))):
        addresses = relative_addresses(b, checked.pattern) + splat(b, checked.first)
        mark_pattern(b, context, site, mask, checked.pattern, checked.first, addresses.ir)
