"""The runtime's memory accesses: resolved addresses, loads, stores, and pointers for atomics.

The common case is written here: the lanes have one pattern, and lie in one segment or one array of
global memory. `lane_code` takes all others. No byte outside the arrays is read or written, whatever
the addresses are.
"""

from __future__ import annotations

from typing import Any

from memlab.device.emulator.codegen.bulk.box_code import BOXES
from memlab.device.emulator.codegen.bulk.range_code import BULK
from memlab.device.emulator.codegen.compiled import compiled, unlikely
from memlab.device.emulator.codegen.copy_code import COPIES, Direction, copy_each, shape_number
from memlab.device.emulator.codegen.lane_code import (
    GENERIC,
    GLOBAL,
    NO_WINDOW,
    SHARED,
    block_of_rank,
    find_array,
    place_each,
    warp_base,
    window_group,
    window_start,
)
from memlab.device.emulator.codegen.lanes import lanes_of, lowest_bit, per_lane, reduce, splat
from memlab.device.emulator.codegen.layout import SITE_KINDS, Addresses, Context, Pattern, Site
from memlab.device.emulator.codegen.pattern_code import (
    count_by_pattern,
    count_remote_by_pattern,
    find_pattern,
    relative_to_first,
    same_pattern,
)
from memlab.device.emulator.codegen.records import (
    Byte,
    Int32,
    Lanes,
    Pointer,
    Word,
    pointer_to,
    room,
)
from memlab.device.emulator.codegen.textures.fetch_code import fetch
from memlab.device.emulator.codegen.use_code import mark_warp, note_use
from memlab.device.emulator.isa.address_space import CLUSTER, OWN_OFFSET, RANK_SHIFT
from memlab.device.emulator.isa.values import S64, where
from memlab.device.properties import WARP_SIZE

_LOAD = SITE_KINDS.index("load")

# --- Resolving addresses --------------------------------------------------------------------------


@compiled(exported=True)
def resolve(context: Context, record: Addresses, site: Site, mask: Word, warp: int) -> None:
    """Complete a record whose `address` was filled in; `mask` is not 0.

    The record serves all instructions that access the same state space by the same register, until
    the register or the active lanes change.
    """
    record.mask, record.warp = mask, warp
    first, relative = relative_to_first(record, mask)
    pattern = site.pattern
    if not pattern or not same_pattern(pattern[0], relative, mask):
        pattern = find_pattern(context, record, mask)
        if not pattern:
            resolve_far(record, site, mask)
            return
        site.pattern = pattern
    known = pattern[0]
    space = site.space
    record.space, record.pattern, record.version = space, pattern, known.version
    record.first, record.low, record.high = first, first + known.low, first + known.high
    if space == GENERIC:
        space = find_window(record)
        if space < 0:
            resolve_far(record, site, mask)
            return
    record.base, record.remote = warp_base(context, context.segments[record.space], warp), 0
    in_cluster = record.space == SHARED and context.cluster_blocks > 1
    if unlikely(in_cluster and site.reach != OWN_OFFSET):
        resolve_rank(context, record, site, warp)


@compiled(seldom=True)
def resolve_far(record: Addresses, site: Site, mask: int) -> None:
    """Resolve addresses that have no pattern."""
    active = lanes_of(mask)
    record.space, record.first = site.space, relative_to_first(record, mask)[0]
    record.low = reduce(where(active, record.address, S64.most), "smin")
    record.high = reduce(where(active, record.address, S64.least), "smax")
    record.pattern, record.base = pointer_to(0, Pattern), 0


@compiled
def resolve_rank(context: Context, record: Addresses, site: Site, warp: int) -> None:
    """Take the rank from addresses in the shared memory of one block that the site can access."""
    rank, own = record.low >> RANK_SHIFT, warp // context.warps_per_block
    peer, segment = block_of_rank(context, warp, rank), context.segments[SHARED]
    is_reached = peer == own or (peer >= 0 and site.reach == CLUSTER)
    if is_reached and rank == record.high >> RANK_SHIFT:
        record.first -= rank << RANK_SHIFT
        record.low -= rank << RANK_SHIFT
        record.high -= rank << RANK_SHIFT
        record.base = segment.base + peer * segment.block_bytes
        record.remote = 0 if peer == own else 1
    else:
        record.pattern = pointer_to(0, Pattern)


@compiled
def find_window(record: Addresses) -> int:
    """The state space of resolved generic addresses, which become addresses of that space.

    It is -1 if they lie in several spaces or in none.
    """
    group = window_group(record.low)
    if unlikely(group != window_group(record.high) or group == NO_WINDOW):
        return -1
    start = window_start(group)
    record.space = group
    record.first -= start
    record.low -= start
    record.high -= start
    return group


# --- Accesses -------------------------------------------------------------------------------------


def _access(direction: Direction) -> Any:
    """`load` or `store`: move the elements of some of the lanes that were resolved.

    `buffer[vector][32]` has items of an element's bytes. A load gives inactive lanes 0; of several
    lanes that store to one address, the highest one's value stays. The functions count the access
    and return 0; on a fault, they note it in the context, move nothing, and return 1.
    """

    @compiled(name=f"{direction}_slow", inline=False)
    def access_slow(
        context: Context, record: Addresses, site: Site, mask: int, buffer: Pointer[Byte]
    ) -> Int32:
        """An access, whatever its addresses are."""
        pointers = room(int, WARP_SIZE)
        if place_each(context, record, site, mask, pointers):
            return 1
        copy_each[direction](site, mask, pointers, buffer)
        return 0

    @compiled(name=direction, exported=True)
    def access(
        context: Context, record: Addresses, site: Site, mask: Word, buffer: Pointer[Byte]
    ) -> Int32:
        """An access, mostly a usual one."""
        if unlikely(not is_usual(context, record, site, mask)):
            return access_slow(context, record, site, mask, buffer)
        pattern = record.pattern[0]
        count_usual(context, site, record, pattern)
        if direction == "store":
            mark_warp(context, record, site, mask)
        lane_bytes = context.segments[record.space].lane_bytes
        first = record.base + record.first + site.offset + lowest_bit(mask) * lane_bytes
        shape = shape_number(site.element_bytes, site.vector)
        for number, copy in COPIES[direction].items():
            if shape == number:
                copy(first, pattern, lane_bytes, mask, buffer)
        return 0

    return access


load, store = _access("load"), _access("store")


@compiled(exported=True)
def prepare_atomic(
    context: Context, record: Addresses, site: Site, mask: Word, pointers: Pointer[int]
) -> Int32:
    """The host address of each active lane's first element; other lanes get no or any value.

    Counts and faults are those of `load` and `store`.
    """
    if unlikely(not is_usual(context, record, site, mask)):
        return place_each(context, record, site, mask, pointers)
    pattern = record.pattern[0]
    count_usual(context, site, record, pattern)
    mark_warp(context, record, site, mask)
    lane_bytes = context.segments[record.space].lane_bytes
    places = pattern.relative.to(S64) + splat(record.base + record.first + site.offset)
    pointers.to(Lanes)[0] = places + per_lane(lambda lane: lane) * splat(lane_bytes)
    return 0


@compiled(inline=True)
def count_usual(context: Context, site: Site, record: Addresses, pattern: Pattern) -> None:
    """Count an access to resolved addresses, those in another block's shared memory apart."""
    if unlikely(record.remote):
        count_remote_by_pattern(context, site, record, pattern)
    else:
        count_by_pattern(context, site, record, pattern)


@compiled(inline=True)
def is_usual(context: Context, record: Addresses, site: Site, mask: int) -> bool:
    """Whether all lanes may access one segment, or one array of global memory, by one pattern."""
    pattern = record.pattern
    if not pattern or record.mask != mask:
        return False
    if record.version != pattern[0].version:
        return False  # another pattern has taken the place of this one
    size, segment = site.size, context.segments[record.space]
    if (record.first + site.offset | pattern[0].ored) & (size - 1):
        return False
    if segment.read_only and site.kind != _LOAD:
        return False
    low, high = record.low + site.offset, record.high + site.offset
    if record.space != GLOBAL:
        return is_inside(0, segment.size - size, low, high)
    index = site.array
    if not 0 <= index < context.array_count or not is_in_array(context, index, low, high, size):
        index = find_array(context, low)
        if index < 0 or not is_in_array(context, index, low, high, size):
            return False
        site.array = index
    note_use(context, site, index)
    return True


@compiled
def is_in_array(context: Context, index: int, low: int, high: int, size: int) -> bool:
    """Whether accesses of `size` bytes, at addresses from `low` to `high`, are in an array."""
    array = context.arrays[index]
    return is_inside(array.start, array.end - size, low, high)


@compiled
def is_inside(first: int, last: int, low: int, high: int) -> bool:
    """Whether addresses that span less than 2^31 bytes lie in a range; none wraps around."""
    return first <= low <= high <= last


MEMORY: tuple[Any, ...] = (resolve, load, store, prepare_atomic, fetch, *BULK, *BOXES)
"""What the code of programs calls."""
