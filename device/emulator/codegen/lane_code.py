"""The runtime's accesses lane by lane: any addresses, checked, counted and marked as written.

The lanes may lie in several state spaces and arrays, or at fault. A state space but global memory
is a segment; a generic address lies in the window of a state space.
"""

from __future__ import annotations

from llvmlite import ir

from memlab.device.emulator.codegen.flow import bit_loop, counted_loop
from memlab.device.emulator.codegen.layout import (
    ADDRESSES,
    ARRAY,
    CONTEXT,
    FAULT,
    SEGMENT,
    SITE,
    SITE_KINDS,
    SPACES,
    element_pointer,
    field_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.pattern_code import count_directly
from memlab.device.emulator.codegen.runtime_parts import (
    ADDRESS_LANES,
    I1,
    I32,
    I64,
    POINTER,
    begin,
    call,
    failed,
    lanes_of,
    load_lanes,
    require,
    splat,
    stack_room,
)
from memlab.device.emulator.codegen.use_code import note_use
from memlab.device.emulator.isa.address_space import GLOBAL_BASE, WINDOW_BYTES, WINDOWS
from memlab.device.emulator.isa.values import where
from memlab.device.properties import WARP_SIZE

GLOBAL, GENERIC = SPACES.index("global"), SPACES.index("generic")
NO_WINDOW = len(SPACES) - 1
"""The group of lanes whose generic address lies in no window; other groups are state spaces."""

_GROUPS = NO_WINDOW + 1
_LOAD = SITE_KINDS.index("load")
_WINDOW_BITS = WINDOW_BYTES.bit_length() - 1
_TOP_WINDOW = GLOBAL_BASE >> _WINDOW_BITS  # the other windows lie below, in the order of SPACES
assert [WINDOWS[name] >> _WINDOW_BITS for name in SPACES[: len(WINDOWS)]] == [
    _TOP_WINDOW - space for space in range(len(WINDOWS))
]


def add_lane_functions(module: ir.Module) -> None:
    """Add the functions to the runtime's module."""
    add_find_array(module)
    _add_place_group(module)
    _add_note_fault(module)
    _add_count_group(module)
    _add_place_each(module)


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
    generic = b.icmp_signed("==", own_space, I64(GENERIC))
    held = field_pointer(b, record, ADDRESSES, "address")
    with bit_loop(b, mask) as lane:
        address = b.add(b.load(element_pointer(b, held, lane, 8), typ=I64), offset)
        group = b.select(generic, window_group(b, address), own_space)
        window = b.select(generic, window_start(b, group), I64(0))
        b.store(b.sub(address, window), element_pointer(b, moved, lane, 8))
        members = element_pointer(b, groups, group, 4)
        bit = b.shl(I32(1), b.trunc(lane, I32))
        b.store(b.or_(b.load(members, typ=I32), bit), members)

    def space_of(group: ir.Value) -> ir.Value:
        return b.select(b.icmp_signed("==", group, I64(NO_WINDOW)), I64(GLOBAL), group)

    with counted_loop(b, I64(_GROUPS)) as group:
        lanes = b.load(element_pointer(b, groups, group, 4), typ=I32)
        with b.if_then(b.icmp_signed("!=", lanes, I32(0))):
            arguments = (context, site, space_of(group), lanes, moved, warp)
            with b.if_then(failed(b, call(b, "place_group", *arguments, pointers))):
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
    segment = segment_of(b, context, space)
    base = warp_base(b, context, segment, warp)
    lane_bytes = load_field(b, segment, SEGMENT, "lane_bytes")
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    kind = load_field(b, site, SITE, "kind")
    read_only = load_field(b, segment, SEGMENT, "read_only")
    fault = b.append_basic_block("fault")

    loads = b.icmp_signed("==", kind, I32(_LOAD))
    require(b, b.or_(loads, b.icmp_signed("==", read_only, I64(0))), fault)
    with bit_loop(b, lanes) as lane:
        address = b.load(element_pointer(b, addresses, lane, 8), typ=I64)
        odd = b.and_(address, b.sub(size, I64(1)))
        require(b, b.icmp_signed("==", odd, I64(0)), fault)
        with b.if_else(b.icmp_signed("==", space, I64(GLOBAL))) as (then, otherwise):
            with then:
                index = call(b, "find_array", context, address)
                require(b, b.icmp_signed(">=", index, I64(0)), fault)
                arrays = load_field(b, context, CONTEXT, "arrays")
                array = element_pointer(b, arrays, index, ARRAY.itemsize)
                end = load_field(b, array, ARRAY, "end")
                require(b, b.icmp_signed("<=", address, b.sub(end, size)), fault)
                note_use(b, context, site, index)
            with otherwise:
                require(b, b.icmp_signed(">=", address, I64(0)), fault)
                end = load_field(b, segment, SEGMENT, "size")
                require(b, b.icmp_signed("<=", address, b.sub(end, size)), fault)
        place = b.add(b.add(base, address), b.mul(lane, lane_bytes))
        b.store(place, element_pointer(b, pointers, lane, 8))
    b.ret(I32(0))
    b.position_at_end(fault)
    b.ret(I32(1))


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
    with b.if_then(b.and_(stores, b.icmp_signed("==", space, I64(GLOBAL)))):
        size = b.zext(load_field(b, site, SITE, "size"), I64)
        call(b, "mark_written", context, addresses, lanes, size)
    b.ret_void()


# --- Where memory lies ----------------------------------------------------------------------------


def window_group(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The state space of a generic address; `NO_WINDOW` where it lies in none."""
    below = b.sub(I64(_TOP_WINDOW), b.ashr(address, I64(_WINDOW_BITS)))
    return b.select(b.icmp_unsigned("<", below, I64(len(WINDOWS))), below, I64(NO_WINDOW))


def window_start(b: ir.IRBuilder, group: ir.Value) -> ir.Value:
    """The generic address of a state space's first byte; 0 for global memory."""
    start = b.shl(b.sub(I64(_TOP_WINDOW), group), I64(_WINDOW_BITS))
    plain = b.or_(
        b.icmp_signed("==", group, I64(GLOBAL)), b.icmp_signed("==", group, I64(NO_WINDOW))
    )
    return b.select(plain, I64(0), start)


def segment_of(b: ir.IRBuilder, context: ir.Value, space: ir.Value) -> ir.Value:
    """The record of a state space."""
    segments = field_pointer(b, context, CONTEXT, "segments")
    return element_pointer(b, segments, space, SEGMENT.itemsize)


def warp_base(b: ir.IRBuilder, context: ir.Value, segment: ir.Value, warp: ir.Value) -> ir.Value:
    """The host address of address 0 of a segment for the first lane of a warp."""
    block = b.udiv(warp, load_field(b, context, CONTEXT, "warps_per_block"))
    of_block = b.mul(block, load_field(b, segment, SEGMENT, "block_bytes"))
    lanes = b.mul(warp, I64(WARP_SIZE))
    of_warp = b.mul(lanes, load_field(b, segment, SEGMENT, "lane_bytes"))
    base = b.ptrtoint(load_field(b, segment, SEGMENT, "base"), I64)
    return b.add(base, b.add(of_block, of_warp))


def add_find_array(module: ir.Module) -> None:
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
