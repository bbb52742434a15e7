"""The runtime's notes of which arrays are used, and of who stored to which unit of memory.

A unit is a few bytes of global memory, such as an element. Its mark is the number of the blocks
that stored to it last. Blocks that run at the same time have numbers of their own: where they store
to the same unit, the context notes a conflict.
"""

from __future__ import annotations

from typing import Annotated, Any

from llvmlite import ir

from memlab.device.emulator.codegen.compiled import compiled, set_bits
from memlab.device.emulator.codegen.lanes import ALL_LANES, bits_of, splat
from memlab.device.emulator.codegen.layout import SITE_KINDS, SPACES, Addresses, Context, Site
from memlab.device.emulator.codegen.records import Half, Lanes, Pointer, Word, builder, room
from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.emulator.isa.values import S64, U16, Value
from memlab.device.properties import WARP_SIZE

NO_OTHER_WRITERS = (1 << 16) - 1
"""The `first_writer` of blocks that run alone: no block has this number."""

_GLOBAL = SPACES.index("global")
_LOAD, _STORE = map(SITE_KINDS.index, ("load", "store"))
_MARKS_AT_ONCE = 4  # that one instruction exchanges


@compiled
def note_use(context: Context, site: Site, index: int) -> None:
    """Note that an array was loaded from, or stored to; an atomic operation does both."""
    array = context.arrays[index]
    array.loaded |= site.kind != _STORE
    array.stored |= site.kind != _LOAD


@compiled
def mark_warp(context: Context, record: Addresses, site: Site, mask: int) -> None:
    """Mark what the lanes of a warp store to resolved addresses, if these are in global memory."""
    if record.space != _GLOBAL:
        return
    pattern, first, size = record.pattern[0], record.first + site.offset, site.size
    if mask == ALL_LANES and pattern.stride == size:
        start, last = unit_of(context, first), unit_of(context, first + WARP_SIZE * size - 1)
        mark_range(context, context.units_written + start, last - start + 1)
    else:
        addresses = room(Lanes)
        addresses[0] = pattern.relative.to(S64) + splat(first)
        mark_written(context, addresses.to(int), mask, size)


@compiled
def mark_range(context: Context, marks: Pointer[Half], count: int) -> None:
    """Mark units that follow one another."""
    marked = 0
    if is_alone(context):
        for number in range(count // WARP_SIZE):
            marks.to(_marks(WARP_SIZE))[number] = splat(context.writer, U16)
        marked = count & -WARP_SIZE
    elif marks.address & 7 == 0:
        for number in range(count // _MARKS_AT_ONCE):
            _exchange(context, marks + number * _MARKS_AT_ONCE, _MARKS_AT_ONCE)
        marked = count & -_MARKS_AT_ONCE
    for number in range(marked, count):
        exchange_mark(context, marks + number)


@compiled
def mark_written(context: Context, addresses: Pointer[int], mask: Word, size: int) -> None:
    """Mark what lanes store: `size` bytes from each one's address on."""
    units = max(size >> context.unit_shift, 1)
    for count in (1, 2, 4, 8, 16, 32):
        if units == count:
            for lane in set_bits(mask):
                marks = context.units_written + unit_of(context, addresses[lane])
                if is_alone(context):
                    marks.to(_marks(count))[0] = splat(context.writer, U16, count)
                else:
                    for number in range(count):
                        exchange_mark(context, marks + number)


@compiled
def exchange_mark(context: Context, place: Pointer[Half]) -> None:
    """Mark one unit while other blocks run."""
    _exchange(context, place, 1)


def _exchange(context: Context, marks: Pointer[Half], count: int) -> None:
    """Mark some units at once, and note whether other blocks that run have marked one.

    Of two threads that mark a unit at the same time, one sees the mark of the other.
    """
    b = builder()
    writers = splat(context.writer, U16, count)
    word = b.bitcast(writers.ir, ir.IntType(16 * count))
    old = b.bitcast(b.atomic_rmw("xchg", marks.start, word, "monotonic"), writers.ir.type)
    before = Value(b, old, U16)
    is_other = (before != writers) & (before >= splat(context.first_writer, U16, count))
    context.conflict |= bits_of(is_other)


def _marks(count: int) -> Any:
    """The marks of some units."""
    return Annotated[Value, (U16, count)]


@compiled
def is_alone(context: Context) -> bool:
    """Whether no other blocks run at the same time."""
    return context.first_writer == NO_OTHER_WRITERS


@compiled
def unit_of(context: Context, address: int) -> int:
    """The number of the unit that an address lies in."""
    return (address - GLOBAL_BASE) >> context.unit_shift
