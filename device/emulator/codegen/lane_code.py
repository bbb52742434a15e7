"""The runtime's accesses lane by lane: any addresses, checked, counted and marked as written.

The lanes may lie in several state spaces and arrays, or at fault. A state space but global memory
is a segment; a generic address lies in the window of a state space. Addresses in shared memory may
lie in that of another block of the cluster, whose accesses count by themselves.
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled, set_bits
from memlab.device.emulator.codegen.cost_code import count_sectors
from memlab.device.emulator.codegen.lanes import fill_bytes, lanes_of, lowest_bit, splat
from memlab.device.emulator.codegen.layout import (
    SITE_KINDS,
    SPACES,
    Addresses,
    Context,
    Segment,
    Site,
)
from memlab.device.emulator.codegen.pattern_code import count_directly
from memlab.device.emulator.codegen.records import (
    Address,
    Int32,
    Lanes,
    Pointer,
    Word,
    field_pointer,
    room,
)
from memlab.device.emulator.codegen.use_code import mark_written, note_use
from memlab.device.emulator.isa.address_space import (
    CLUSTER,
    GLOBAL_BASE,
    OWN_OFFSET,
    RANK_SHIFT,
    RANK_UNIT,
    UNREACHABLE,
    WINDOW_BYTES,
    WINDOWS,
)
from memlab.device.emulator.isa.values import where
from memlab.device.properties import WARP_SIZE

GLOBAL, SHARED, GENERIC = map(SPACES.index, ("global", "shared", "generic"))
NO_WINDOW = len(SPACES) - 1
"""The group of lanes whose generic address lies in no window; other groups are state spaces."""

_GROUPS = NO_WINDOW + 1
_LOAD = SITE_KINDS.index("load")
_WINDOW_BITS = WINDOW_BYTES.bit_length() - 1
_TOP_WINDOW = GLOBAL_BASE >> _WINDOW_BITS  # the other windows lie below, in the order of SPACES
assert [WINDOWS[name] >> _WINDOW_BITS for name in SPACES[: len(WINDOWS)]] == [
    _TOP_WINDOW - space for space in range(len(WINDOWS))
]


@compiled(inline=False)
def place_each(
    context: Context, record: Addresses, site: Site, mask: Word, pointers: Pointer[int]
) -> Int32:
    """Find the element of each lane; the lanes may lie in several state spaces and arrays.

    As `prepare_atomic` for any access.
    """
    groups, moved = room(Word, _GROUPS), room(int, WARP_SIZE)
    fill_bytes(groups, 4 * _GROUPS)
    fill_bytes(moved, 8 * WARP_SIZE)
    held, is_generic = field_pointer(record, "address", int), site.space == GENERIC
    for lane in set_bits(mask):
        address = held[lane] + site.offset
        group = window_group(address) if is_generic else site.space
        moved[lane] = address - window_start(group) if is_generic else address
        groups[group] |= 1 << lane
    for lane in set_bits(groups[SHARED]):
        moved[lane] = place_in_cluster(context, record.warp, moved[lane], site.reach)
    for group in range(_GROUPS):
        lanes, space = groups[group], space_of(group)
        if lanes and not place_group(context, site, space, lanes, moved, record.warp, pointers):
            note_fault(context, site, space, lanes, moved, record.warp)
            return 1
    if context.cluster_blocks > 1:
        count_remote(context, site, groups, moved)
    for group in range(_GROUPS):
        if groups[group]:
            count_group(context, site, space_of(group), groups[group], moved, record.warp)
    return 0


@compiled
def space_of(group: int) -> int:
    """The state space in which the lanes of a group are looked for."""
    return GLOBAL if group == NO_WINDOW else group


@compiled
def place_group(
    context: Context,
    site: Site,
    space: int,
    lanes: int,
    addresses: Pointer[int],
    warp: int,
    pointers: Pointer[int],
) -> bool:
    """Find the elements of lanes in one state space; whether all may be accessed.

    `addresses` are theirs there, with the offset.
    """
    segment = context.segments[space]
    base = warp_base(context, segment, warp)
    if site.kind != _LOAD and segment.read_only:
        return False
    for lane in set_bits(lanes):
        address = addresses[lane]
        if address & (site.size - 1):
            return False
        if space == GLOBAL:
            index = find_array(context, address)
            if index < 0 or address > context.arrays[index].end - site.size:
                return False
            note_use(context, site, index)
        elif address < 0 or address > segment.size - site.size:
            peer = peer_of(context, warp, address)
            offset = address & (RANK_UNIT - 1)
            if space != SHARED or peer < 0 or offset > segment.size - site.size:
                return False
            pointers[lane] = segment.base + peer * segment.block_bytes + offset
            continue
        pointers[lane] = base + address + lane * segment.lane_bytes
    return True


@compiled
def note_fault(
    context: Context, site: Site, space: int, lanes: int, addresses: Pointer[int], warp: int
) -> None:
    """Keep the fault if it is the first, by instruction and then by warp."""
    fault = context.fault
    is_earlier = fault.index < 0 or site.index < fault.index
    if is_earlier or (site.index == fault.index and warp < fault.warp):
        fault.index, fault.warp, fault.space, fault.mask = site.index, warp, space, lanes
        fault.address = addresses.to(Lanes)[0]


@compiled
def count_group(
    context: Context, site: Site, space: int, lanes: int, addresses: Pointer[int], warp: int
) -> None:
    """Count the access of some lanes, and mark what they store."""
    first = addresses[lowest_bit(lanes)]
    relative = where(lanes_of(lanes), addresses.to(Lanes)[0] - splat(first), 0)
    count_directly(context, site, space, warp, first - site.offset, relative, lanes)
    if site.kind != _LOAD and space == GLOBAL:
        mark_written(context, addresses, lanes, site.size)


@compiled
def count_remote(
    context: Context, site: Site, groups: Pointer[Word], addresses: Pointer[int]
) -> None:
    """Count the lanes that access shared memory of other blocks, and take them from their group."""
    remote = 0
    for lane in set_bits(groups[SHARED]):
        if addresses[lane] >= RANK_UNIT:
            remote |= 1 << lane
    groups[SHARED] &= ~remote
    if remote and site.counted_bytes:
        first = addresses[lowest_bit(remote)]
        context.remote_requests[site.index] += 1
        context.remote_sectors[site.index] += count_sectors(
            where(lanes_of(remote), addresses.to(Lanes)[0], splat(first))
        )


# --- Where memory lies ----------------------------------------------------------------------------


@compiled
def window_group(address: int) -> int:
    """The state space of a generic address; `NO_WINDOW` where it lies in none."""
    below = _TOP_WINDOW - (address >> _WINDOW_BITS)
    return below if 0 <= below < len(WINDOWS) else NO_WINDOW


@compiled
def window_start(group: int) -> int:
    """The generic address of a state space's first byte; 0 for global memory."""
    is_plain = group in (GLOBAL, NO_WINDOW)
    return 0 if is_plain else (_TOP_WINDOW - group) << _WINDOW_BITS


@compiled
def warp_base(context: Context, segment: Segment, warp: int) -> Address:
    """The host address of address 0 of a segment for the first lane of a warp."""
    block = warp // context.warps_per_block
    of_warp = block * segment.block_bytes + warp * WARP_SIZE * segment.lane_bytes
    return segment.base + of_warp


@compiled
def place_in_cluster(context: Context, warp: int, address: int, reach: int) -> int:
    """The place of an address in shared memory, which tells the own block from others.

    It is the offset in the own block's; in that of another, (rank + 1) * `RANK_UNIT` more, and
    `UNREACHABLE` more where an instruction of this `reach` cannot access it.
    """
    rank = address >> RANK_SHIFT
    block = block_of_rank(context, warp, rank)
    if block == warp // context.warps_per_block or (reach == OWN_OFFSET and rank == 0):
        return address & (RANK_UNIT - 1)
    place = address if address < 0 else address + RANK_UNIT
    return place + UNREACHABLE if block >= 0 and reach != CLUSTER else place


@compiled
def peer_of(context: Context, warp: int, place: int) -> int:
    """The number of the block in whose shared memory a place is; -1 for none or the own one."""
    return block_of_rank(context, warp, (place >> RANK_SHIFT) - 1)


@compiled
def block_of_rank(context: Context, warp: int, rank: int) -> int:
    """The number of the block with a rank in the cluster of a warp; -1 for none."""
    if rank < 0 or rank >= context.cluster_blocks:
        return -1
    return context.peers[warp // context.warps_per_block * context.cluster_blocks + rank]


@compiled(seldom=True)
def find_array(context: Context, address: int) -> int:
    """The last array that starts at or before an address: its index, or -1."""
    low, high = 0, context.array_count
    # The arrays before `low` start at or before the address, those from `high` on behind it.
    while low < high:
        middle = (low + high) >> 1
        if context.arrays[middle].start <= address:
            low = middle + 1
        else:
            high = middle
    return low - 1
