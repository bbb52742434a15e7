"""The runtime's patterns: which addresses a warp accesses, and counting by their costs.

The addresses of a warp relative to its first active lane form a *pattern*. Kernels repeat few
patterns many times, so patterns are kept in a table, and each cost of one is computed once.
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled, unlikely
from memlab.device.emulator.codegen.cost_code import TAG_BYTES, cost, far_cost
from memlab.device.emulator.codegen.lanes import (
    ALL_LANES,
    bits_of,
    choose,
    fill_bytes,
    lanes_of,
    lowest_bit,
    per_lane,
    reduce,
    splat,
)
from memlab.device.emulator.codegen.layout import (
    COSTS,
    COUNTERS,
    FIRST_COST,
    IRREGULAR,
    L1_CLOCK_PARTS,
    MOST_PATTERNS,
    SPACES,
    Addresses,
    Context,
    Cost,
    Pattern,
    Site,
)
from memlab.device.emulator.codegen.records import (
    Half,
    Int32,
    Lanes,
    NarrowLanes,
    Pointer,
    Word,
    field_pointer,
    pointer_to,
)
from memlab.device.emulator.codegen.trace_code import trace, trace_pattern
from memlab.device.emulator.isa.values import S32, S64, Value, where
from memlab.device.properties import LINE_BYTES

_SECTORS = COUNTERS.index("sectors")
_GLOBAL, _SHARED, _CONST = map(SPACES.index, ("global", "shared", "const"))
_REACH = 1 << 30  # a pattern holds relative addresses in [-reach, reach), and no segment is longer
_HASH = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4)


def relative_to_first(record: Addresses, mask: int) -> tuple[int, Value]:
    """The address of the first active lane, and those of all relative to it; 0 if inactive."""
    first = field_pointer(record, "address", int)[lowest_bit(mask)]
    return first, where(lanes_of(mask), record.address - splat(first), 0)


# --- Counting -------------------------------------------------------------------------------------


@compiled(inline=True)
def count_by_pattern(context: Context, site: Site, record: Addresses, pattern: Pattern) -> None:
    """Count an access to resolved addresses by the cost of their pattern."""
    space = record.space
    if is_counted(site, space):
        alignment = alignment_of(space, record.first + site.offset)
        number = cost_number(site, space, alignment)
        if unlikely(pattern.known[number] == 0):
            find_cost(pattern, number, site, space, alignment)
        add_cost(context, site, pattern.costs[number])
        if unlikely(context.events):
            trace_pattern(context, site, record, pattern)


@compiled(inline=False)
def count_remote_by_pattern(
    context: Context, site: Site, record: Addresses, pattern: Pattern
) -> None:
    """Count an access to shared memory of another block, by the sectors as in global memory."""
    if site.counted_bytes:
        alignment = record.first + site.offset & LINE_BYTES - 1
        number = global_cost_number(site, alignment)
        if unlikely(pattern.known[number] == 0):
            find_cost(pattern, number, site, _GLOBAL, alignment)
        context.remote_requests[site.index] += 1
        context.remote_sectors[site.index] += (pattern.costs + number).to(Half)[_SECTORS]


@compiled(seldom=True)
def find_cost(pattern: Pattern, number: int, site: Site, space: int, alignment: int) -> None:
    """Compute a cost of a pattern."""
    places = L1_CLOCK_PARTS
    relative, mask = pattern.relative, pattern.mask
    pattern.costs[number] = cost(relative, mask, site, space, alignment, places)
    pattern.known[number] = 1


@compiled
def count_directly(
    context: Context, site: Site, space: int, warp: int, first: int, relative: Lanes, lanes: int
) -> None:
    """Count an access whose addresses have no pattern.

    `first` is the first active lane's address without the offset; `relative` is as `cost` takes it;
    `lanes` are the active ones.
    """
    if is_counted(site, space):
        alignment = alignment_of(space, first + site.offset)
        if space == _GLOBAL:
            alignment = first + site.offset & TAG_BYTES - 1
        if is_near(relative):
            narrow = relative.to(S32)
            add_cost(context, site, cost(narrow, lanes, site, space, alignment, 1))
        else:
            add_cost(context, site, far_cost(relative, lanes, site, alignment))
        if unlikely(context.events):
            trace(context, site, space, warp, first, relative, lanes)


@compiled
def is_counted(site: Site, space: int) -> bool:
    """Whether an access is counted: it is not merged into another, nor an access to parameters."""
    return site.counted_bytes != 0 and space <= _CONST


def alignment_of(space: int, address: int) -> int:
    """The part of the first lane's address, with the offset, that decides the cost."""
    bits = choose(space == _GLOBAL, LINE_BYTES - 1, choose(space == _CONST, 0, 3))
    return address & bits


def cost_number(site: Site, space: int, alignment: int) -> int:
    """The place of a cost among those of a pattern, see `FIRST_COST`."""
    by_width = lowest_bit(site.counted_bytes)
    first = choose(space == _SHARED, FIRST_COST["shared"], FIRST_COST["local"])
    words = alignment + choose(space == _CONST, FIRST_COST["const"], first + 4 * by_width)
    number = choose(space == _GLOBAL, global_cost_number(site, alignment), words)
    in_turn = (site.lanes_in_turn != 0) & (space == _SHARED)
    return choose(in_turn, FIRST_COST["in turn"] + by_width, number)


def global_cost_number(site: Site, alignment: int) -> int:
    """The place of a cost in global memory among those of a pattern."""
    wide = choose(
        site.counted_bytes == 8, FIRST_COST["global of 8 bytes"], FIRST_COST["global of 16 bytes"]
    )
    return alignment + choose(site.counted_bytes < 8, FIRST_COST["global"], wide)


@compiled
def add_cost(context: Context, site: Site, cost: Cost) -> None:
    """Add the cost of an access to the counters of its instruction."""
    context.counters[site.index] += cost.to(S64)


# --- The table of patterns ------------------------------------------------------------------------


@compiled
def same_pattern(pattern: Pattern, relative: Lanes, mask: int) -> bool:
    """Whether a pattern holds these relative addresses and this mask."""
    return pattern.mask == mask and bits_of(pattern.relative.to(S64) != relative) == 0


@compiled
def is_near(relative: Lanes) -> bool:
    """Whether a pattern can hold relative addresses."""
    return bits_of((relative >= _REACH) | (relative < -_REACH)) == 0


@compiled(seldom=True)
def find_pattern(context: Context, record: Addresses, mask: Word) -> Pointer[Pattern]:
    """The pattern of some lanes, made if it is not known.

    It is null where the addresses are too far apart for a pattern.
    """
    relative = relative_to_first(record, mask)[1]
    if unlikely(not is_near(relative)):
        return pointer_to(0, Pattern)
    narrow = relative.to(S32)
    place = hash_of(narrow, mask)
    first, second = context.patterns + place, context.patterns + (place ^ 1)
    for known in (first, second):
        if same_pattern(known[0], relative, mask):
            return known
    # The older one of the two that have this hash is replaced.
    older = first if first[0].version <= second[0].version else second
    entry = older[0]
    context.version += 1
    entry.relative, entry.mask, entry.version = narrow, mask, context.version
    entry.ored, entry.stride = reduce(narrow, "or"), stride_of(entry, narrow, mask)
    entry.low, entry.high = reduce(narrow, "smin"), reduce(narrow, "smax")
    fill_bytes(entry.known, COSTS)
    return older


def hash_of(relative: Value, mask: int) -> int:
    """The place of a pattern in the table: a polynomial hash of relative addresses and mask."""
    factors = per_lane(lambda lane: (_HASH * (2 * lane + 1) >> 24 | 1) & ALL_LANES, S32)
    mixed = (reduce(relative * factors, "add") * _HASH + mask) * _HASH
    return (mixed >> (64 - (MOST_PATTERNS.bit_length() - 1))) & (MOST_PATTERNS - 1)


@compiled
def stride_of(pattern: Pattern, relative: NarrowLanes, mask: int) -> int:
    """The bytes between neighbouring lanes, see `Pattern`, which holds the addresses."""
    first, others = lowest_bit(mask), mask & (mask - 1)
    if others == 0:
        return 0
    second = lowest_bit(others)
    there, distance = field_pointer(pattern, "relative", Int32)[second], second - first
    stride = there // distance if there > 0 else -(-there // distance)
    expected = per_lane(lambda lane: lane, S32) - splat(first, S32)
    differs = (relative != expected * splat(stride, S32)) & lanes_of(mask)
    return stride if bits_of(differs) == 0 else IRREGULAR
