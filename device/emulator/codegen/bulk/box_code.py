"""The runtime's tensor copies: finds, checks, counts and moves the boxes of tensors.

A box is a sequence of rows, each a range of global memory. The rows of a box lie one behind the
other in shared memory, in pieces of 16 bytes, which a swizzle exchanges by their address. With
interleave and a step along the first dimension, each slice is a row.
"""

from __future__ import annotations

from typing import Annotated, Any

from llvmlite import ir

from memlab.device.emulator.codegen.bulk.range_code import (
    bulk_cost,
    bulk_outside,
    bulk_start,
    is_bulk_inside,
)
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
from memlab.device.emulator.isa.address_space import CLUSTER, OWN_BLOCK
from memlab.device.emulator.isa.asynchronous import tensor_copies as tensors
from memlab.device.emulator.isa.values import S64, intrinsic
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from memlab.kernels.tensor_maps import PIECE_BYTES

_SHARED = SPACES.index("shared")
_LOAD, _STORE = map(SITE_KINDS.index, ("load", "store"))
_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_DIMENSIONS = tensors.DIMENSIONS
_OUTER = tuple(range(1, _DIMENSIONS))
_AXES = tuple(range(_DIMENSIONS))
_OUTERMOST_FIRST = _AXES[::-1]
_SPAN_MASK = (1 << tensors.SPAN_BITS) - 1
_PIECE, _PIECE_SHIFT, _LINE_SHIFT = PIECE_BYTES, 4, 7
_MAP_BYTES = 8 * tensors.WORDS
_ROWS_AT_ONCE = 16  # that are counted: a row has at most 2 KiB, and costs have 16 bits
_MOST_SECTORS = 256  # that are recorded at once
_MOST_FLOAT, _INFINITY, _TF32_NAN = 0x7FFFFFFF, 0x7F800000, 0x7FFFE000
_NANS = 0x7FF77FF77FF77FF7
"""What elements outside read as, of any type of floating-point numbers (an NVIDIA H200)."""


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
    """A walk over the rows of a box that lie inside the tensor.

    In the mode im2col, a row is a pixel, and `index` has its coordinates. The first dimension is
    walked where slices are rows; elsewhere it has one row.
    """

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
    left: int  # pixels from the current one on; 0 for a tile
    number: int  # of the current pixel


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
def slices_of(tensor: Tensor) -> int:
    """The pieces of a slice of interleaved channels; 0 where they are not interleaved."""
    return tensor.layout >> tensors.LAYOUT_INTERLEAVE & 3


@compiled
def row_bytes(tensor: Tensor) -> int:
    """The bytes that a copy has along the first dimension."""
    count = span_of(tensor, 0)
    if slices_of(tensor):
        step = max(step_of(tensor, 0), 1)
        count = (count + step - 1) // step
        if tensor.layout >> tensors.LAYOUT_IM2COL & 1:
            count = 1
    return count * tensor.strides[0]


@compiled
def pitch_of(tensor: Tensor) -> int:
    """The bytes from a row of the box to the next in shared memory.

    They are at least a swizzled span, but not with interleave (an NVIDIA H200).
    """
    span = _PIECE << (tensor.layout >> tensors.LAYOUT_SWIZZLE & 3)
    if span == _PIECE or slices_of(tensor):
        span = 0
    return max(row_bytes(tensor), span)


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
    if layout >> tensors.LAYOUT_IM2COL & 1 != demands >> 7 & 1:
        return tensors.FAULTS["mode"]
    unaligned = tensor.address
    for axis in _OUTER:
        unaligned |= tensor.strides[axis]
    if unaligned & max(slices_of(tensor), 1) * _PIECE - 1:
        return tensors.FAULTS["layout"]
    return 0


# --- Rows -----------------------------------------------------------------------------------------


@compiled(inline=False)
def begin_rows(rows: Rows, tensor: Tensor, place: int, first: int, end: int, other: int) -> bool:
    """Begin a walk; returns whether there is a row.

    Args:
        rows: The walk.
        tensor: The tensor map.
        place: The address of the element at the coordinates of the box.
        first: The elements of the box before the tensor along each dimension, packed; of im2col,
            the channels before the tensor and up to its end, and the offsets.
        end: The elements up to the tensor's end, likewise; of im2col, the first two coordinates
            behind the channel's.
        other: Of im2col, the other coordinates.
    """
    width = tensor.strides[0]
    rows.place, rows.pitch, rows.left = place, pitch_of(tensor), 0
    if tensor.layout >> tensors.LAYOUT_IM2COL & 1:
        return begin_pixels(rows, tensor, first, end, other)
    before, inside = first & _SPAN_MASK, end & _SPAN_MASK
    rows.skipped, rows.bytes = before * width, (inside - before) * width
    rank, has_row = tensor.layout >> tensors.LAYOUT_RANK & 7, 1
    slices, innermost = slices_of(tensor), 1
    if slices and step_of(tensor, 0) > 1:
        innermost, rows.skipped, rows.bytes, rows.pitch = 0, 0, width, width
    elif inside <= before:
        has_row = 0
    for axis in _AXES:
        rows.low[axis], rows.high[axis], rows.count[axis], rows.strides[axis] = 0, 1, 1, 0
        if axis >= innermost and axis < rank:
            step, span = step_of(tensor, axis), span_of(tensor, axis)
            shift = tensors.SPAN_BITS * axis
            before, inside = first >> shift & _SPAN_MASK, end >> shift & _SPAN_MASK
            if slices and axis == rank - 2:
                step, span, before, inside = 1, 1, min(before, 1), min(inside, 1)
            rows.low[axis] = (before + step - 1) // step
            rows.high[axis] = (inside + step - 1) // step
            rows.count[axis] = (span + step - 1) // step
            rows.strides[axis] = tensor.strides[axis] * step
            if rows.low[axis] >= rows.high[axis]:
                has_row = 0
        rows.index[axis] = rows.low[axis]
    find_row(rows)
    return has_row == 1


@compiled(inline=False)
def begin_pixels(rows: Rows, tensor: Tensor, first: int, end: int, other: int) -> bool:
    """Begin a walk over pixels, whose `count` are the offsets; returns whether there is one."""
    find_start(rows, tensor, first, end, other)
    if rows.bytes <= 0:
        return False
    return find_pixel(rows, tensor)


@compiled(inline=False)
def find_start(rows: Rows, tensor: Tensor, first: int, end: int, other: int) -> None:
    """Find the first pixel of a walk. With interleave, the first coordinate is one of it too."""
    width, rank = tensor.strides[0], tensor.layout >> tensors.LAYOUT_RANK & 7
    before, inside = first & _SPAN_MASK, first >> tensors.SPAN_BITS & _SPAN_MASK
    rows.skipped, rows.bytes = before * width, (inside - before) * width
    # The place is that of the channel at the tensor's first pixel.
    rows.index[1], rows.index[2] = low_half(end), end >> 32
    rows.index[3], rows.index[4] = low_half(other), other >> 32
    for axis in _AXES:
        rows.count[axis] = 0
        if axis and axis < rank:
            rows.place -= rows.index[axis] * tensor.strides[axis]
    slices = slices_of(tensor)
    if slices:
        rows.index[0] = rows.place - tensor.address >> _PIECE_SHIFT - 1 + slices
        rows.place, rows.pitch, rows.skipped, rows.bytes = tensor.address, width, 0, width
    for of_rank, bits in tensors.OFFSET_BITS.items():
        if rank == of_rank:
            for number in range(of_rank - 2):
                shift = tensors.OFFSETS + bits * number
                offset = first >> shift & (1 << bits) - 1
                if slices:
                    rows.count[number] = offset
                else:
                    rows.count[1 + number] = offset
    rows.left, rows.number = span_of(tensor, 1), 0


@compiled
def innermost_of(tensor: Tensor) -> int:
    """The first dimension of a pixel: that of channels lies before it, unless they are slices."""
    return 0 if slices_of(tensor) else 1


@compiled
def crosses_pixels(tensor: Tensor, axis: int) -> bool:
    """Whether the walk over pixels goes along a dimension, and not at its end to the next image."""
    innermost = innermost_of(tensor)
    rank = tensor.layout >> tensors.LAYOUT_RANK & 7
    return axis >= innermost and axis < rank - 2 + innermost


@compiled
def upper_of(tensor: Tensor, axis: int) -> int:
    """Where the pixels of a dimension end."""
    end = tensor.extents[axis] & 0xFFFFFFFF
    return end + corner_of(tensor.upper, axis - innermost_of(tensor))


@compiled(inline=False)
def fault_of_pixels(
    tensor: Tensor, is_load: bool, place: int, first: int, end: int, other: int
) -> int:
    """The address that stands for what an NVIDIA H200 refuses of a copy of im2col; 0 if nothing."""
    rows = room(Rows)[0]
    rows.place = place
    find_start(rows, tensor, first, end, other)
    for axis in _AXES:
        if crosses_pixels(tensor, axis):
            point, number = rows.index[axis], axis - innermost_of(tensor)
            low, high = corner_of(tensor.lower, number), corner_of(tensor.upper, number)
            if not is_load and (low < 0 or high > 0):
                return tensors.FAULTS["corners"]
            if point < low or point >= upper_of(tensor, axis):
                return tensors.FAULTS["pixel"]
    return 0


@compiled
def low_half(word: int) -> int:
    """The lower half of a word, as a signed number."""
    return (word & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)


@compiled
def corner_of(word: int, number: int) -> int:
    """A coordinate of a corner of im2col."""
    return (word >> 16 * number & 0xFFFF ^ 1 << 15) - (1 << 15)


@compiled
def find_pixel(rows: Rows, tensor: Tensor) -> bool:
    """Go on to the next pixel that lies inside the tensor, which may be the current one."""
    rank = tensor.layout >> tensors.LAYOUT_RANK & 7
    while rows.left:
        address, outside = rows.place + rows.skipped, 0
        for axis in _AXES:
            if axis >= innermost_of(tensor) and axis < rank:
                point = rows.index[axis] + rows.count[axis]
                address += point * tensor.strides[axis]
                if point < 0 or point >= tensor.extents[axis] & 0xFFFFFFFF:
                    outside = 1
        if outside == 0:
            rows.address, rows.offset = address, rows.number * rows.pitch + rows.skipped
            return True
        leave_pixel(rows, tensor)
    return False


@compiled(inline=False)
def leave_pixel(rows: Rows, tensor: Tensor) -> None:
    """Go to the next pixel: along the innermost dimension that has one before its upper corner."""
    rank = tensor.layout >> tensors.LAYOUT_RANK & 7
    rows.left, rows.number = rows.left - 1, rows.number + 1
    for axis in _AXES:
        if axis == rank - 1:
            rows.index[axis] += step_of(tensor, axis)
        elif crosses_pixels(tensor, axis):
            rows.index[axis] += step_of(tensor, axis)
            if rows.index[axis] < upper_of(tensor, axis):
                return
            rows.index[axis] = corner_of(tensor.lower, axis - innermost_of(tensor))


@compiled
def next_row(rows: Rows, tensor: Tensor) -> bool:
    """Go to the next row; returns whether there is one."""
    if rows.left:
        leave_pixel(rows, tensor)
        return find_pixel(rows, tensor)
    following = rows.index[1] + 1
    if following < rows.high[1] and rows.count[0] == 1:
        rows.index[1] = following
        rows.address, rows.offset = rows.address + rows.strides[1], rows.offset + rows.pitch
        return True
    return turn_row(rows)


@compiled(inline=False)
def turn_row(rows: Rows) -> bool:
    """Go to the next row along any dimension; returns whether there is one."""
    for axis in _AXES:
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
    others: Pointer[int],
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
        others: As `begin_rows`, shape (32,).
        sources: Shape (32,); other lanes get any value.

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    held = field_pointer(record, "address", int)
    for lane in set_bits(mask):
        address = held[lane] + site.offset
        sources[lane] = address
        place = map_of(context, warp, maps[lane])
        first, end, other = firsts[lane], ends[lane], others[lane]
        if not take_box(context, site, lane, warp, demands, address, place, first, end, other):
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
    others: Pointer[int],
) -> Int32:
    """Check, count and mark what lanes write, and move it; a reduction moves nothing.

    What is to be counted alone is not moved either.

    The arguments are those of `read_box`.

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    held = field_pointer(record, "address", int)
    for lane in set_bits(mask):
        address = held[lane] + site.offset
        place = map_of(context, warp, maps[lane])
        first, end, other = firsts[lane], ends[lane], others[lane]
        if not take_box(context, site, lane, warp, demands, address, place, first, end, other):
            return 1
        if site.kind == _STORE and demands & tensors.COUNTED_ALONE == 0:
            tensor = pointer_to(place, Tensor)[0]
            loads = site.space != GLOBAL
            memory = sources[lane] if loads else address
            shared = address if loads else sources[lane]
            move_box(context, warp, tensor, memory, shared, first, end, other, loads)
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
    other: int,
) -> bool:
    """Check what a lane accesses, note its use and count it; whether it is not at fault."""
    fault = tensors.FAULTS["no map"]
    if place:
        tensor = pointer_to(place, Tensor)[0]
        size = tensor.shared_bytes
        fault = fault_of(tensor, demands)
        if fault == 0 and site.space == GLOBAL and address & _PIECE - 1:
            fault = tensors.FAULTS["start"]
        elif (
            fault == 0 and site.space == GLOBAL and site.kind != _LOAD and is_before(tensor, first)
        ):
            fault = tensors.FAULTS["before"]
        elif fault == 0 and site.space == GLOBAL:
            if tensor.layout >> tensors.LAYOUT_IM2COL & 1:
                is_load = site.kind == _LOAD
                fault = fault_of_pixels(tensor, is_load, address, first, end, other)
            if fault == 0:
                fault = count_box(context, site, warp, tensor, address, first, end, other)
        elif fault == 0:
            if address & tensors.SHARED_ALIGNMENT_BYTES - 1:
                fault = tensors.FAULTS["alignment"]
            elif bulk_start(context, _SHARED, warp, address, size, site.reach) == 0:
                fault = bulk_outside(context, _SHARED, warp, address, size, site.reach)
    if fault == 0:
        return True
    places = room(int, WARP_SIZE)
    for number in range(WARP_SIZE):
        places[number] = fault
    note_fault(context, site, site.space, 1 << lane, places, warp)
    return False


@compiled
def is_clipped(tensor: Tensor, first: int, end: int) -> bool:
    """Whether part of a tile lies outside its tensor."""
    is_tile = tensor.layout >> tensors.LAYOUT_IM2COL & 1 == 0
    return is_tile and (first != 0 or end != whole_box(tensor))


@compiled
def is_before(tensor: Tensor, first: int) -> bool:
    """Whether a tile begins before its tensor, where an NVIDIA H200 makes no store."""
    return tensor.layout >> tensors.LAYOUT_IM2COL & 1 == 0 and first != 0


@compiled(inline=False)
def count_box(
    context: Context,
    site: Site,
    warp: int,
    tensor: Tensor,
    address: int,
    first: int,
    end: int,
    other: int,
) -> int:
    """Check and count the rows of a box in global memory, and mark what is written.

    Returns:
        0; the address that stands for a fault.
    """
    rows, sectors = room(Rows)[0], room(int, _MOST_SECTORS)
    requests, held, last, total, counted, counts = 1, 0, -1, 0, 0, 1
    if site.kind == _LOAD and is_clipped(tensor, first, end):
        count_whole_box(context, site, rows, tensor, address)
        counts = 0
    goes_on = begin_rows(rows, tensor, address, first, end, other)
    if not goes_on:
        add_cost(context, site, bulk_cost(1, 0, 0))
        return 0
    index = find_array(context, rows.address)
    if index < 0:
        return tensors.FAULTS["outside"]
    limit = context.arrays[index].end
    note_use(context, site, index)
    if site.kind == _LOAD and not context.events and has_equal_rows(rows):
        last = rows.address
        for axis in _AXES:
            last += (rows.high[axis] - rows.low[axis] - 1) * rows.strides[axis]
        if rows.address < context.arrays[index].start or last + rows.bytes > limit:
            return tensors.FAULTS["outside"]
        count_equal_rows(context, site, rows, counts)
        return 0
    while goes_on:
        start, stop = rows.address, rows.address + rows.bytes
        if start < context.arrays[index].start or stop > limit:
            return tensors.FAULTS["outside"]
        if site.kind != _LOAD:
            stop = start + written_bytes(rows, limit)
            unit = unit_of(context, start)
            mark_range(context, context.units_written + unit, unit_of(context, stop - 1) - unit + 1)
        total += rows.bytes
        sector, final = start >> _SECTOR_SHIFT, stop - 1 >> _SECTOR_SHIFT
        counted += counts * row_sectors(rows, start)
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
        if counted + (total >> _SECTOR_SHIFT) >= _MOST_SECTORS:
            add_cost(context, site, bulk_cost(requests, counted, total))
            requests, counted, total = 0, 0, 0
        goes_on = next_row(rows, tensor)
    add_cost(context, site, bulk_cost(requests, counted, total))
    if context.events and held:
        trace_sectors(context, site, warp, sectors[0] << _SECTOR_SHIFT, sectors, held)
    return 0


@compiled
def has_equal_rows(rows: Rows) -> bool:
    """Whether all rows of a tile lie alike in sectors, and in pieces of shared memory."""
    unequal = rows.left | rows.pitch & LINE_BYTES - 1
    for axis in _AXES:
        unequal |= rows.strides[axis] & SECTOR_BYTES - 1
    return unequal == 0


@compiled
def count_equal_rows(context: Context, site: Site, rows: Rows, counts: int) -> None:
    """Count the rows of a tile that lie alike, without their sectors where `counts` is 0."""
    left, requests, each = 1, 1, counts * row_sectors(rows, rows.address)
    for axis in _AXES:
        left *= rows.high[axis] - rows.low[axis]
    while left:
        some = min(left, _ROWS_AT_ONCE)
        add_cost(context, site, bulk_cost(requests, each * some, rows.bytes * some))
        left, requests = left - some, 0


@compiled
def row_sectors(rows: Rows, start: int) -> int:
    """The sectors of a row from an address on.

    The copy engine makes a piece of each 128 bytes of shared memory, and counts the sectors of
    each: those that two pieces share count twice (an NVIDIA H200 counts so).
    """
    sectors = (start + rows.bytes - 1 >> _SECTOR_SHIFT) - (start >> _SECTOR_SHIFT) + 1
    gap = LINE_BYTES - (rows.offset & LINE_BYTES - 1)
    if rows.bytes > gap and (start + gap) & SECTOR_BYTES - 1:
        sectors += (rows.bytes - gap - 1) // LINE_BYTES + 1
    return sectors


@compiled(inline=False)
def count_whole_box(context: Context, site: Site, rows: Rows, tensor: Tensor, address: int) -> None:
    """Count the sectors of a tile that is loaded, also of what lies outside its tensor.

    An NVIDIA H200 counts these as they would lie in memory.
    """
    goes_on, counted = begin_rows(rows, tensor, address, 0, whole_box(tensor), 0), 0
    while goes_on:
        counted += row_sectors(rows, rows.address)
        if counted >= _MOST_SECTORS:
            add_cost(context, site, bulk_cost(0, counted, 0))
            counted = 0
        goes_on = next_row(rows, tensor)
    add_cost(context, site, bulk_cost(0, counted, 0))


@compiled
def written_bytes(rows: Rows, limit: int) -> int:
    """The bytes of a row that a store or a reduction writes, up to the end of an array.

    These are whole pieces, also where the tensor ends within one (`h100-tensor-stores.csv`).
    """
    return min(rows.bytes + _PIECE - 1 & -_PIECE, limit - rows.address)


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
def move_box(
    context: Context,
    warp: int,
    tensor: Tensor,
    place: int,
    shared: int,
    first: int,
    end: int,
    other: int,
    loads: bool,
) -> None:
    """Move a box between global memory and an address of shared memory, which is aligned.

    A store moves the pieces that begin inside the tensor alone; `loads` tells the direction.
    """
    memory = warp_base(context, context.segments[GLOBAL], warp)
    reach = CLUSTER if loads else OWN_BLOCK
    block = bulk_start(context, _SHARED, warp, shared, tensor.shared_bytes, reach) - shared
    rows, mask = room(Rows)[0], swizzle_mask(tensor)
    limit = context.arrays[max(find_array(context, place), 0)].end
    if loads and (first != 0 or end != whole_box(tensor)):
        fill_box(tensor, block, shared)
    goes_on = begin_rows(rows, tensor, place, first, end, other)
    while goes_on:
        start, count = shared + rows.offset, rows.bytes
        if not loads:
            count = written_bytes(rows, limit)
        move_row(block, start, memory + rows.address, count, mask, loads)
        if loads and tensor.layout >> tensors.LAYOUT_TF32 & 1:
            round_row(block, mask, start, count)
        goes_on = next_row(rows, tensor)


@compiled
def move_row(block: Address, start: int, row: Address, count: int, mask: int, loads: bool) -> None:
    """Move a row of a box, piece by piece where these are exchanged."""
    if mask == 0:
        _move_bytes(block + start if loads else row, row if loads else block + start, count)
        return
    pieces, rest = count >> _PIECE_SHIFT, count & _PIECE - 1
    for number in range(pieces):
        held, other = block + swizzled(mask, start + _PIECE * number), row + _PIECE * number
        _move_bytes(held if loads else other, other if loads else held, _PIECE)
    if rest:
        held, other = block + swizzled(mask, start + _PIECE * pieces), row + _PIECE * pieces
        _move_bytes(held if loads else other, other if loads else held, rest)


@compiled(inline=False)
def round_row(block: Address, mask: int, start: int, count: int) -> None:
    """Round float32 numbers in shared memory to 10 bits behind the point, ties to even.

    Denormal numbers too; a NaN becomes one of them (an NVIDIA H200).
    """
    for number in range(count >> 2):
        place = pointer_to(block + swizzled(mask, start + 4 * number), Word)
        bits = place[0]
        if bits & _MOST_FLOAT > _INFINITY:
            place[0] = _TF32_NAN
        else:
            place[0] = bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF


@compiled
def whole_box(tensor: Tensor) -> int:
    """What `begin_rows` takes as the end of a tile that lies inside its tensor."""
    whole = 0
    for axis in range(tensor.layout >> tensors.LAYOUT_RANK & 7):
        whole |= span_of(tensor, axis) << tensors.SPAN_BITS * axis
    return whole


@compiled
def fill_box(tensor: Tensor, block: Address, shared: int) -> None:
    """Fill a box in shared memory with what elements outside the tensor read as."""
    word, mask, pitch = 0, swizzle_mask(tensor), pitch_of(tensor)
    if tensor.layout >> tensors.LAYOUT_NAN & 1:
        word = _NANS
    words = row_bytes(tensor) >> 3
    for row in range(tensor.shared_bytes // pitch):
        for index in range(words):
            place = swizzled(mask, shared + row * pitch + 8 * index)
            pointer_to(block + place, int)[0] = word


BOXES = (read_box, write_box)
"""What the code of programs calls."""
