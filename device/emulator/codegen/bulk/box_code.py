"""The runtime's tensor copies: finds, checks, counts and moves the boxes of tensors.

A box is a sequence of rows, each a range of global memory. The rows of a box lie one behind the
other in shared memory, in pieces of 16 bytes, which a swizzle exchanges by their address.
"""

from __future__ import annotations

from typing import Annotated, Any

from llvmlite import ir

from memlab.device.emulator.codegen.bulk.range_code import bulk_cost, is_bulk_inside
from memlab.device.emulator.codegen.compiled import compiled, set_bits, unlikely
from memlab.device.emulator.codegen.lane_code import (
    GLOBAL,
    NO_WINDOW,
    find_array,
    note_fault,
    warp_base,
    window_group,
    window_start,
)
from memlab.device.emulator.codegen.layout import SITE_KINDS, SPACES, Addresses, Context, Site
from memlab.device.emulator.codegen.pattern_code import add_cost
from memlab.device.emulator.codegen.records import (
    NUMBER,
    Address,
    Int32,
    Pointer,
    Record,
    Word,
    builder,
    field_pointer,
    pointer_to,
    raw_value,
    room,
)
from memlab.device.emulator.codegen.trace_code import trace_sectors
from memlab.device.emulator.codegen.use_code import mark_range, note_use, unit_of
from memlab.device.emulator.isa.asynchronous import tensor_copies as tensors
from memlab.device.emulator.isa.values import S64, Value, intrinsic
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

_SHARED, _STORE = SPACES.index("shared"), SITE_KINDS.index("store")
_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_DIMENSIONS = tensors.DIMENSIONS
_OUTER = tuple(range(1, _DIMENSIONS))
_OUTERMOST_FIRST = _OUTER[::-1]
_SPAN_MASK = (1 << tensors.SPAN_BITS) - 1
_PIECE, _PIECE_SHIFT, _LINE_SHIFT = tensors.PIECE_BYTES, 4, 7
_MAP_BYTES = 8 * tensors.WORDS
_MOST_SECTORS = 256  # that are recorded at once
_Piece = Annotated[Value, (S64, 2)]
_NANS = {6: 0x7FFF, 7: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF, 9: 0x7FFF}
"""What elements outside read as, by the number of their type."""


class Tensor(Record):
    """A tensor map: see `tensor_copies.MapFields`."""

    address: int
    strides: Annotated[Pointer[int], _DIMENSIONS]
    extents: Annotated[Pointer[int], _DIMENSIONS]  # with the spans of the box
    layout: int
    steps: int
    lower: int
    upper: int
    shared_bytes: int


class Rows(Record):
    """A walk over the rows of a box that lie inside the tensor."""

    place: int  # address of the element at the coordinates of the box
    pitch: int  # bytes of a whole row in shared memory
    skipped: int  # bytes of a row that lie before the tensor
    bytes: int  # of a row inside the tensor
    address: int  # where the current row begins in global memory
    offset: int  # where it begins in the box
    index: Annotated[Pointer[int], _DIMENSIONS]  # of the current row
    low: Annotated[Pointer[int], _DIMENSIONS]  # the first row inside the tensor
    high: Annotated[Pointer[int], _DIMENSIONS]  # behind the last one
    count: Annotated[Pointer[int], _DIMENSIONS]  # rows of the box
    strides: Annotated[Pointer[int], _DIMENSIONS]  # bytes from one to the next


# --- Tensor maps ----------------------------------------------------------------------------------


@compiled
def map_of(context: Context, warp: int, address: int) -> Address:
    """The host address of the tensor map at a generic address; 0 where there is none."""
    group = window_group(address)
    space = GLOBAL if group == NO_WINDOW else group
    place = address - window_start(group)
    if address & 63 or not is_bulk_inside(context, space, place, _MAP_BYTES):
        return 0
    return warp_base(context, context.segments[space], warp) + place


@compiled
def span_of(tensor: Tensor, dimension: int) -> int:
    """The elements that the box spans along a dimension."""
    return tensor.extents[dimension] >> 32


@compiled
def step_of(tensor: Tensor, dimension: int) -> int:
    """Of so many elements along a dimension, one is copied."""
    return tensor.steps >> 8 * dimension & 0xFF


@compiled
def pitch_of(tensor: Tensor) -> int:
    """The bytes from a row of the box to the next in shared memory: at least a swizzled span."""
    span = _PIECE << (tensor.layout >> tensors.LAYOUT_SWIZZLE & 3)
    return max(span_of(tensor, 0) * tensor.strides[0], span if span > _PIECE else 0)


@compiled
def fault_of(tensor: Tensor, demands: int) -> int:
    """The address that stands for what is wrong with a map; 0 if nothing is.

    `demands` are those of the instruction: `tensor_copies.demands_of`.
    """
    layout = tensor.layout
    if layout >> tensors.LAYOUT_MARK & 0xFFFF != tensors.MARK:
        return tensors.FAULTS["no map"]
    if layout >> tensors.LAYOUT_RANK & 7 != demands & 7:
        return tensors.FAULTS["rank"]
    if demands >> 8 + (layout >> tensors.LAYOUT_TYPE & 15) & 1 == 0:
        return tensors.FAULTS["type"]
    if layout >> tensors.LAYOUT_IM2COL & 1:
        return tensors.FAULTS["mode"]
    if layout >> tensors.LAYOUT_INTERLEAVE & 3:
        return tensors.FAULTS["interleave"]
    return 0


# --- Rows -----------------------------------------------------------------------------------------


@compiled(inline=False)
def begin_rows(rows: Rows, tensor: Tensor, place: int, first: int, end: int) -> bool:
    """Begin a walk; returns whether there is a row.

    Args:
        rows: The walk.
        tensor: The tensor map.
        place: The address of the element at the coordinates of the box.
        first: The elements of the box before the tensor along each dimension, packed.
        end: The elements up to the tensor's end, likewise.
    """
    width = tensor.strides[0]
    rows.place, rows.pitch = place, pitch_of(tensor)
    before, inside = first & _SPAN_MASK, end & _SPAN_MASK
    rows.skipped, rows.bytes = before * width, (inside - before) * width
    rank, has_row = tensor.layout >> tensors.LAYOUT_RANK & 7, 1
    if inside <= before:
        has_row = 0
    for axis in _OUTER:
        rows.low[axis], rows.high[axis], rows.count[axis], rows.strides[axis] = 0, 1, 1, 0
        if axis < rank:
            step, shift = step_of(tensor, axis), tensors.SPAN_BITS * axis
            before, inside = first >> shift & _SPAN_MASK, end >> shift & _SPAN_MASK
            rows.low[axis] = (before + step - 1) // step
            rows.high[axis] = (inside + step - 1) // step
            rows.count[axis] = (span_of(tensor, axis) + step - 1) // step
            rows.strides[axis] = tensor.strides[axis] * step
            if rows.low[axis] >= rows.high[axis]:
                has_row = 0
        rows.index[axis] = rows.low[axis]
    find_row(rows)
    return has_row == 1


@compiled
def next_row(rows: Rows) -> bool:
    """Go to the next row; returns whether there is one."""
    for axis in _OUTER:
        rows.index[axis] += 1
        if rows.index[axis] < rows.high[axis]:
            find_row(rows)
            return True
        rows.index[axis] = rows.low[axis]
    return False


@compiled
def find_row(rows: Rows) -> None:
    """Find the place of the current row in global memory and in the box."""
    address, number = rows.place + rows.skipped, 0
    for axis in _OUTERMOST_FIRST:
        address += rows.index[axis] * rows.strides[axis]
        number = number * rows.count[axis] + rows.index[axis]
    rows.address, rows.offset = address, number * rows.pitch + rows.skipped


# --- Reading and writing --------------------------------------------------------------------------


@compiled(exported=True)
def read_box(
    context: Context,
    record: Addresses,
    site: Site,
    mask: Word,
    warp: int,
    demands: int,
    maps: Pointer[int],
    firsts: Pointer[int],
    ends: Pointer[int],
    sources: Pointer[int],
) -> Int32:
    """Check and count what lanes read; `sources` get the addresses in their state space.

    Args:
        context: The running blocks.
        record: Its `address` holds that of each lane, without the site's offset.
        site: The instruction.
        mask: The lanes.
        warp: Their warp.
        demands: What the instruction demands of the maps: `tensor_copies.demands_of`.
        maps: Generic addresses of their tensor maps, shape (32,).
        firsts: As `begin_rows`, shape (32,).
        ends: As `begin_rows`, shape (32,).
        sources: Shape (32,); other lanes get any value.

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    held = field_pointer(record, "address", int)
    for lane in set_bits(mask):
        address = held[lane] + site.offset
        sources[lane] = address
        place = map_of(context, warp, maps[lane])
        if not take_box(
            context, site, lane, warp, demands, address, place, firsts[lane], ends[lane]
        ):
            return 1
    return 0


@compiled(exported=True)
def write_box(
    context: Context,
    record: Addresses,
    site: Site,
    mask: Word,
    warp: int,
    demands: int,
    sources: Pointer[int],
    maps: Pointer[int],
    firsts: Pointer[int],
    ends: Pointer[int],
) -> Int32:
    """Check, count and mark what lanes write, and move it; a reduction moves nothing.

    The arguments are those of `read_box`.

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    held = field_pointer(record, "address", int)
    for lane in set_bits(mask):
        address = held[lane] + site.offset
        place = map_of(context, warp, maps[lane])
        if not take_box(
            context, site, lane, warp, demands, address, place, firsts[lane], ends[lane]
        ):
            return 1
        if site.kind == _STORE:
            tensor = pointer_to(place, Tensor)[0]
            if site.space == GLOBAL:
                store_box(context, warp, tensor, address, sources[lane], firsts[lane], ends[lane])
            else:
                load_box(context, warp, tensor, sources[lane], address, firsts[lane], ends[lane])
    return 0


@compiled(inline=False)
def take_box(
    context: Context,
    site: Site,
    lane: int,
    warp: int,
    demands: int,
    address: int,
    place: Address,
    first: int,
    end: int,
) -> bool:
    """Check what a lane accesses, note its use and count it; whether it is not at fault."""
    fault = tensors.FAULTS["no map"]
    if place:
        tensor = pointer_to(place, Tensor)[0]
        fault = fault_of(tensor, demands)
        if fault == 0 and site.space == GLOBAL and address & _PIECE - 1:
            fault = tensors.FAULTS["start"]
        elif fault == 0 and site.space == GLOBAL:
            fault = count_box(context, site, warp, tensor, address, first, end)
        elif fault == 0:
            if address & tensors.SHARED_ALIGNMENT_BYTES - 1:
                fault = tensors.FAULTS["alignment"]
            elif not is_bulk_inside(context, site.space, address, tensor.shared_bytes):
                size = context.segments[site.space].size
                fault = max(address, size & -_PIECE)
    if fault == 0:
        return True
    places = room(int, WARP_SIZE)
    for number in range(WARP_SIZE):
        places[number] = fault
    note_fault(context, site, site.space, 1 << lane, places, warp)
    return False


@compiled(inline=False)
def count_box(
    context: Context, site: Site, warp: int, tensor: Tensor, address: int, first: int, end: int
) -> int:
    """Check and count the rows of a box in global memory, and mark what is written.

    Returns:
        0; the address that stands for a fault.
    """
    rows, sectors = room(Rows)[0], room(int, _MOST_SECTORS)
    requests, held, last, total, counted = 1, 0, -1, 0, 0
    more = begin_rows(rows, tensor, address, first, end)
    if not more:
        add_cost(context, site, bulk_cost(1, 0, 0))
        return 0
    index = find_array(context, rows.address)
    if index < 0:
        return tensors.FAULTS["outside"]
    limit = context.arrays[index].end
    note_use(context, site, index)
    while more:
        start, stop = rows.address, rows.address + rows.bytes
        if start < context.arrays[index].start or stop > limit:
            return tensors.FAULTS["outside"]
        if site.kind != SITE_KINDS.index("load"):
            unit = unit_of(context, start)
            mark_range(context, context.units_written + unit, unit_of(context, stop - 1) - unit + 1)
        total += rows.bytes
        sector, final = start >> _SECTOR_SHIFT, stop - 1 >> _SECTOR_SHIFT
        counted += final - sector + 1 + split_sectors(rows, start)
        if unlikely(context.events):
            while sector <= final:
                if held == _MOST_SECTORS or (held and sector < last):
                    first_address = sectors[0] << _SECTOR_SHIFT
                    trace_sectors(context, site, warp, first_address, sectors, held)
                    held, last = 0, -1
                if sector != last:
                    sectors[held] = sector
                    held += 1
                last = sector
                sector += 1
        if counted >= _MOST_SECTORS:
            add_cost(context, site, bulk_cost(requests, counted, total))
            requests, counted, total = 0, 0, 0
        more = next_row(rows)
    add_cost(context, site, bulk_cost(requests, counted, total))
    if context.events and held:
        trace_sectors(context, site, warp, sectors[0] << _SECTOR_SHIFT, sectors, held)
    return 0


@compiled
def split_sectors(rows: Rows, start: int) -> int:
    """The sectors of a row, from an address on, that two pieces of 128 bytes share.

    The copy engine makes a piece of each 128 bytes of shared memory, and counts the sectors of
    each (an NVIDIA H200 counts so).
    """
    gap = LINE_BYTES - (rows.offset & LINE_BYTES - 1)
    if rows.bytes <= gap or (start + gap) & SECTOR_BYTES - 1 == 0:
        return 0
    return (rows.bytes - gap - 1) // LINE_BYTES + 1


# --- Moving ---------------------------------------------------------------------------------------


def _move_bytes(to: Any, of: Any, count: Any) -> None:
    """Move bytes from a host address to another one."""
    b, pointer = builder(), ir.PointerType()
    kinds = [pointer, pointer, S64.ir, ir.IntType(1)]
    move = intrinsic(b, "llvm.memmove", ir.VoidType(), kinds, "p0.p0.i64")
    places = (b.inttoptr(raw_value(NUMBER, place), pointer) for place in (to, of))
    b.call(move, [*places, raw_value(NUMBER, count), ir.IntType(1)(0)])


@compiled
def swizzle_mask(tensor: Tensor) -> int:
    """The bits of the number of a piece that its address changes."""
    return (1 << (tensor.layout >> tensors.LAYOUT_SWIZZLE & 3)) - 1


@compiled
def swizzled(mask: int, address: int) -> int:
    """Where the byte at an address of shared memory lies (PTX ISA, "Swizzling Modes")."""
    return address ^ (address >> _LINE_SHIFT & mask) << _PIECE_SHIFT


@compiled(inline=False)
def load_box(
    context: Context, warp: int, tensor: Tensor, place: int, shared: int, first: int, end: int
) -> None:
    """Move a box from global memory to an address of shared memory, which is aligned."""
    memory = warp_base(context, context.segments[GLOBAL], warp)
    block = warp_base(context, context.segments[_SHARED], warp)
    rows, mask, whole = room(Rows)[0], swizzle_mask(tensor), 0
    for axis in range(tensor.layout >> tensors.LAYOUT_RANK & 7):
        whole |= span_of(tensor, axis) << tensors.SPAN_BITS * axis
    if first != 0 or end != whole:
        fill_box(rows, tensor, block, shared, whole)
    more = begin_rows(rows, tensor, place, first, end)
    while more:
        start, left, source = shared + rows.offset, rows.bytes, memory + rows.address
        if mask == 0:
            _move_bytes(block + start, source, left)
        elif (start | left) & _PIECE - 1 == 0:
            while left:
                target = pointer_to(block + swizzled(mask, start), _Piece)
                target[0] = pointer_to(source, _Piece)[0]
                start, source, left = start + _PIECE, source + _PIECE, left - _PIECE
        else:
            while left:
                size = min(_PIECE - (start & _PIECE - 1), left)
                _move_bytes(block + swizzled(mask, start), source, size)
                start, source, left = start + size, source + size, left - size
        more = next_row(rows)


@compiled
def fill_box(rows: Rows, tensor: Tensor, block: Address, shared: int, whole: int) -> None:
    """Fill a box in shared memory with what elements outside the tensor read as."""
    word, mask = 0, swizzle_mask(tensor)
    if tensor.layout >> tensors.LAYOUT_NAN & 1:
        kind = tensor.layout >> tensors.LAYOUT_TYPE & 15
        for number, bits in _NANS.items():
            if kind == number:
                word = _repeated(bits)
    more = begin_rows(rows, tensor, 0, 0, whole)
    while more:
        start = shared + rows.offset
        for index in range(rows.bytes >> 3):
            pointer_to(block + swizzled(mask, start + 8 * index), int)[0] = word
        more = next_row(rows)


def _repeated(bits: int) -> int:
    """The bits of elements that are the same, in a word of 64 bits, as a signed number."""
    width = bits.bit_length() + 1
    word = sum(bits << shift for shift in range(0, 64, width))
    return word - (1 << 64) if word >> 63 else word


@compiled(inline=False)
def store_box(
    context: Context, warp: int, tensor: Tensor, place: int, shared: int, first: int, end: int
) -> None:
    """Move what lies inside the tensor of a box from shared to global memory."""
    memory = warp_base(context, context.segments[GLOBAL], warp)
    block = warp_base(context, context.segments[_SHARED], warp)
    rows, mask = room(Rows)[0], swizzle_mask(tensor)
    more = begin_rows(rows, tensor, place, first, end)
    while more:
        start, left, target = shared + rows.offset, rows.bytes, memory + rows.address
        if mask == 0:
            _move_bytes(target, block + start, left)
            left = 0
        while left:
            size = min(_PIECE - (start & _PIECE - 1), left)
            _move_bytes(target, block + swizzled(mask, start), size)
            start, target, left = start + size, target + size, left - size
        more = next_row(rows)


BOXES = (read_box, write_box)
"""What the code of programs calls."""
