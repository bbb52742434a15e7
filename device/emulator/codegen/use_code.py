"""Writes the runtime's notes of which arrays are used, and of who stored to which unit of memory.

A unit is a few bytes of global memory, such as an element. Its mark is the number of the blocks
that stored to it last. Blocks that run at the same time have numbers of their own: where they store
to the same unit, the context notes a conflict.
"""

from __future__ import annotations

from llvmlite import ir

from memlab.device.emulator.codegen.flow import bit_loop, counted_loop
from memlab.device.emulator.codegen.layout import (
    ARRAY,
    CONTEXT,
    PATTERN,
    SITE,
    SITE_KINDS,
    element_pointer,
    field_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.runtime_parts import (
    ADDRESS_LANES,
    ALL_LANES,
    I16,
    I32,
    I64,
    POINTER,
    begin,
    call,
    splat,
    stack_room,
)
from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.properties import WARP_SIZE

NO_OTHER_WRITERS = (1 << 16) - 1
"""The `first_writer` of blocks that run alone: no block has this number."""


def note_use(b: ir.IRBuilder, context: ir.Value, site: ir.Value, index: ir.Value) -> None:
    """Note that an array was loaded from, or stored to; an atomic operation does both."""
    arrays = load_field(b, context, CONTEXT, "arrays")
    array = element_pointer(b, arrays, index, ARRAY.itemsize)
    kind = load_field(b, site, SITE, "kind")
    for name, other in (("loaded", "store"), ("stored", "load")):
        done = b.icmp_signed("!=", kind, I32(SITE_KINDS.index(other)))
        place = field_pointer(b, array, ARRAY, name)
        b.store(b.or_(b.load(place, typ=I64), b.zext(done, I64)), place)


def mark_pattern(
    b: ir.IRBuilder,
    context: ir.Value,
    site: ir.Value,
    mask: ir.Value,
    pattern: ir.Value,
    first: ir.Value,
    addresses: ir.Value,
) -> None:
    """Mark what the lanes of a warp store to global memory.

    Args:
        b: The function under construction.
        context: The context.
        site: The instruction.
        mask: The lanes.
        pattern: The pattern of their addresses.
        first: The first one's address.
        addresses: All addresses, as lanes.
    """
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    stride = load_field(b, pattern, PATTERN, "stride")
    full = b.icmp_signed("==", mask, I32(ALL_LANES))
    contiguous = b.and_(full, b.icmp_signed("==", stride, size))
    with b.if_else(contiguous) as (then, otherwise):
        with then:
            start = _units(b, context, first)
            last_byte = b.add(first, b.sub(b.mul(size, I64(WARP_SIZE)), I64(1)))
            distance = b.sub(b.ptrtoint(_units(b, context, last_byte), I64), b.ptrtoint(start, I64))
            count = b.add(b.lshr(distance, I64(1)), I64(1))
            call(b, "mark_range", context, start, count)
        with otherwise:
            place = stack_room(b, ADDRESS_LANES)
            b.store(addresses, place)
            call(b, "mark_written", context, place, mask, size)


def add_mark_functions(module: ir.Module) -> None:
    """Add the functions that mark units.

    - `mark_range(context, start, count)`: units that follow one another, from a pointer on.
    - `mark_written(context, addresses, lanes, size)`: what lanes store; `addresses` are an array
      of 32, each lane stores `size` bytes.
    """
    _add_exchange_mark(module)
    b = begin(module, "mark_range", ir.VoidType(), POINTER, POINTER, I64)
    context, start, count = b.function.args
    marked = b.alloca(I64)
    b.store(I64(0), marked)
    whole = b.and_(count, I64(-WARP_SIZE))
    with b.if_then(_is_alone(b, context)):
        with counted_loop(b, b.lshr(whole, I64(5))) as number:
            place = b.gep(start, [b.shl(number, I64(5))], source_etype=I16)
            b.store(_writers(b, context, WARP_SIZE), place, align=2)
        b.store(whole, marked)
    aligned = b.icmp_unsigned("==", b.and_(b.ptrtoint(start, I64), I64(7)), I64(0))
    with b.if_then(b.and_(aligned, b.not_(_is_alone(b, context)))):
        with counted_loop(b, b.lshr(whole, I64(2))) as number:
            place = b.gep(start, [b.shl(number, I64(2))], source_etype=I16)
            _exchange(b, context, place, 4)
        b.store(whole, marked)
    done = b.load(marked, typ=I64)
    with counted_loop(b, b.sub(count, done)) as number:
        place = b.gep(start, [b.add(done, number)], source_etype=I16)
        call(b, "exchange_mark", context, place)
    b.ret_void()

    b = begin(module, "mark_written", ir.VoidType(), POINTER, POINTER, I32, I64)
    context, addresses, lanes, size = b.function.args
    shift = load_field(b, context, CONTEXT, "unit_shift")
    one = b.append_basic_block("one")
    switch = b.switch(b.lshr(size, shift), one)
    b.position_at_end(one)
    _mark_lanes(b, context, addresses, lanes, 1)
    for count in (2, 4, 8, 16, 32):
        block = b.append_basic_block(f"marks{count}")
        switch.add_case(I64(count), block)
        b.position_at_end(block)
        _mark_lanes(b, context, addresses, lanes, count)


def _mark_lanes(
    b: ir.IRBuilder, context: ir.Value, addresses: ir.Value, lanes: ir.Value, count: int
) -> None:
    """Mark so many units from each lane's address on, and return."""
    with bit_loop(b, lanes) as lane:
        address = b.load(element_pointer(b, addresses, lane, 8), typ=I64)
        _mark(b, context, _units(b, context, address), count)
    b.ret_void()


def _mark(b: ir.IRBuilder, context: ir.Value, place: ir.Value, count: int) -> None:
    """Mark some units."""
    with b.if_else(_is_alone(b, context)) as (alone, together):
        with alone:
            b.store(_writers(b, context, count), place, align=2)
        with together, counted_loop(b, I64(count)) as number:
            call(b, "exchange_mark", context, b.gep(place, [number], source_etype=I16))


def _add_exchange_mark(module: ir.Module) -> None:
    """`exchange_mark(context, place)`: mark one unit while other blocks run."""
    b = begin(module, "exchange_mark", ir.VoidType(), POINTER, POINTER)
    context, place = b.function.args
    _exchange(b, context, place, 1)
    b.ret_void()


def _exchange(b: ir.IRBuilder, context: ir.Value, place: ir.Value, count: int) -> None:
    """Mark some units at once, and note whether other blocks that run have marked one.

    Of two threads that mark a unit at the same time, one sees the mark of the other.
    """
    word, lanes = ir.IntType(16 * count), ir.VectorType(I16, count)
    writers = _writers(b, context, count)
    old = b.atomic_rmw("xchg", place, b.bitcast(writers, word), "monotonic")
    before = b.bitcast(old, lanes)
    first = splat(b, b.trunc(load_field(b, context, CONTEXT, "first_writer"), I16), count).ir
    others = b.and_(b.icmp_unsigned("!=", before, writers), b.icmp_unsigned(">=", before, first))
    any_other = b.icmp_unsigned("!=", b.bitcast(others, ir.IntType(count)), ir.IntType(count)(0))
    with b.if_then(any_other, likely=False):
        store_field(b, I64(1), context, CONTEXT, "conflict")


def _writers(b: ir.IRBuilder, context: ir.Value, count: int) -> ir.Value:
    return splat(b, b.trunc(load_field(b, context, CONTEXT, "writer"), I16), count).ir


def _is_alone(b: ir.IRBuilder, context: ir.Value) -> ir.Value:
    """Whether no other blocks run at the same time."""
    first = load_field(b, context, CONTEXT, "first_writer")
    return b.icmp_unsigned("==", first, I64(NO_OTHER_WRITERS))


def _units(b: ir.IRBuilder, context: ir.Value, address: ir.Value) -> ir.Value:
    """A pointer to the mark of the unit that an address lies in."""
    shift = load_field(b, context, CONTEXT, "unit_shift")
    unit = b.lshr(b.sub(address, I64(GLOBAL_BASE)), shift)
    return b.gep(load_field(b, context, CONTEXT, "units_written"), [unit], source_etype=I16)
