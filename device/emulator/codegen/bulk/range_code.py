"""The runtime's bulk copies: finds, checks and counts what the copy engine reads and writes.

A lane reads or writes a whole range of one state space, in shared memory also that of another block
of the cluster. Its sectors are counted where it lies in global memory.
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled, set_bits, unlikely
from memlab.device.emulator.codegen.cost_code import cost_of
from memlab.device.emulator.codegen.lane_code import (
    GLOBAL,
    NO_WINDOW,
    SHARED,
    find_array,
    note_fault,
    peer_of,
    place_in_cluster,
    warp_base,
    window_group,
    window_start,
)
from memlab.device.emulator.codegen.layout import Addresses, Context, Cost, Site
from memlab.device.emulator.codegen.pattern_code import add_cost
from memlab.device.emulator.codegen.records import (
    Address,
    Int32,
    Pointer,
    Word,
    field_pointer,
    room,
)
from memlab.device.emulator.codegen.trace_code import trace_sectors
from memlab.device.emulator.codegen.use_code import mark_range, note_use, unit_of
from memlab.device.emulator.isa.address_space import OWN_BLOCK, RANK_UNIT
from memlab.device.emulator.isa.asynchronous.bulk_copies import SIZE_FAULT
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from memlab.kernels.tensor_maps import PIECE_BYTES

_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_COUNTED_BYTES = 1 << 13  # at once: the counts of a cost have 16 bits


@compiled(exported=True)
def read_bulk(
    context: Context,
    record: Addresses,
    site: Site,
    mask: Word,
    warp: int,
    sizes: Pointer[Word],
    sources: Pointer[int],
) -> Int32:
    """Check and count what lanes read; `sources` get the generic addresses.

    Args:
        context: The running blocks.
        record: Its `address` holds that of each lane, without the site's offset.
        site: The instruction.
        mask: The lanes, not 0.
        warp: Their warp.
        sizes: Bytes of each lane, shape (32,).
        sources: Shape (32,); other lanes get any value.

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    held, start = field_pointer(record, "address", int), window_start(site.space)
    for lane in set_bits(mask):
        address = held[lane] + site.offset
        if not take_bulk(context, site, lane, warp, address, sizes[lane]):
            return 1
        sources[lane] = start + address
    return 0


@compiled(exported=True)
def place_bulk(
    context: Context,
    record: Addresses,
    site: Site,
    mask: Word,
    warp: int,
    sources: Pointer[int],
    sizes: Pointer[Word],
    places: Pointer[int],
) -> Int32:
    """Check, count and mark what lanes write; finds it and its source in the host's memory.

    A lane whose source was not read moves nothing: its size becomes 0.

    Args:
        context: The running blocks.
        record: Its `address` holds that of each lane, without the site's offset.
        site: The instruction.
        mask: The lanes, not 0.
        warp: Their warp.
        sources: What `read_bulk` gave, shape (32,); becomes host addresses.
        sizes: Bytes of each lane, shape (32,).
        places: Gets the host addresses of what is written, shape (32,).

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    held = field_pointer(record, "address", int)
    for lane in set_bits(mask):
        address, size = held[lane] + site.offset, sizes[lane]
        if not take_bulk(context, site, lane, warp, address, size):
            return 1
        group = window_group(sources[lane])
        source = 0
        if group != NO_WINDOW:
            address_there = sources[lane] - window_start(group)
            source = bulk_start(context, group, warp, address_there, size, OWN_BLOCK)
        if source == 0:
            sizes[lane] = 0
        sources[lane] = source
        places[lane] = bulk_start(context, site.space, warp, address, size, site.reach)
        if site.space == GLOBAL and sizes[lane]:
            first, last = unit_of(context, address), unit_of(context, address + size - 1)
            mark_range(context, context.units_written + first, last - first + 1)
    return 0


@compiled(inline=False)
def take_bulk(context: Context, site: Site, lane: int, warp: int, address: int, size: int) -> bool:
    """Check what a lane accesses, note its use and count it; whether it is not at fault."""
    space = site.space
    start = bulk_start(context, space, warp, address, size, site.reach)
    if (address | size) & (PIECE_BYTES - 1) or start == 0:
        places, fault = room(int, WARP_SIZE), address
        if address & (PIECE_BYTES - 1) == 0:
            fault = bulk_outside(context, space, warp, address, size, site.reach)
        for number in range(WARP_SIZE):
            places[number] = fault
        note_fault(context, site, space, 1 << lane, places, warp)
        return False
    if space == GLOBAL and size:
        note_use(context, site, find_array(context, address))
        count_bulk(context, site, warp, address, size)
    return True


@compiled
def is_bulk_inside(context: Context, space: int, address: int, size: int) -> bool:
    """Whether bytes from an address on lie in an array of global memory, or in a segment."""
    if space != GLOBAL:
        return address >= 0 and address + size <= context.segments[space].size
    index = find_array(context, address)
    return index >= 0 and address + size <= context.arrays[index].end


@compiled
def bulk_start(
    context: Context, space: int, warp: int, address: int, size: int, reach: int
) -> Address:
    """The host address of a range, which may lie in another block's shared memory.

    It is 0 for one that is not inside an array of global memory, or inside a segment. `reach` is
    that of the site.
    """
    segment = context.segments[space]
    if space == SHARED:
        address = place_in_cluster(context, warp, address, reach)
    if is_bulk_inside(context, space, address, size):
        return warp_base(context, segment, warp) + address
    if space != SHARED:
        return 0
    block, offset = peer_of(context, warp, address), address & (RANK_UNIT - 1)
    if block < 0 or offset + size > segment.size:
        return 0
    return segment.base + block * segment.block_bytes + offset


@compiled
def bulk_outside(
    context: Context, space: int, warp: int, address: int, size: int, reach: int
) -> int:
    """The first piece of a range that is not inside; the size's own fault if there is none."""
    end = context.segments[space].size
    if space == SHARED:
        address = place_in_cluster(context, warp, address, reach)
    if space == GLOBAL:
        index = find_array(context, address)
        end = context.arrays[index].end if index >= 0 else address
    elif space == SHARED and peer_of(context, warp, address) >= 0:
        end += address & -RANK_UNIT
    if address >= 0 and address + size <= end:
        return SIZE_FAULT
    return address if address < 0 or address >= end else end & -PIECE_BYTES


@compiled
def count_bulk(context: Context, site: Site, warp: int, address: int, size: int) -> None:
    """Count a range of global memory: a request, and the sectors of its pieces of 128 bytes.

    The copy engine makes a piece of each 128 bytes of shared memory, in which copies mostly begin
    at such a boundary. A sector that two pieces share is read twice (an NVIDIA H200 counts so).
    """
    sectors, requests, start = room(int, _COUNTED_BYTES // SECTOR_BYTES + 1), 1, address
    while start < address + size:
        end = start + _COUNTED_BYTES
        end = min(end, address + size)
        first, last = start >> _SECTOR_SHIFT, end - 1 >> _SECTOR_SHIFT
        for number in range(last - first + 1):
            sectors[number] = first + number
        count = last - first + 1
        if start & (SECTOR_BYTES - 1):
            count += (end - start - 1) // LINE_BYTES
        add_cost(context, site, bulk_cost(requests, count, end - start))
        if unlikely(context.events):
            trace_sectors(context, site, warp, start, sectors, last - first + 1)
        start, requests = end, 0


@compiled
def bulk_cost(requests: int, sectors: int, moved: int) -> Cost:
    """The counts of a part of a range; it passes no wavefront of the L1."""
    return cost_of(requests=requests, sectors=sectors, bytes=moved, used=moved)


BULK = (read_bulk, place_bulk)
"""What the code of programs calls."""
