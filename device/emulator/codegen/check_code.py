"""Checks watched instructions of a launch before they are executed, as machine code.

It knows the common case only: that the tools of `checks` have nothing to report. Then it notes the
access in the shadow memory, as they do, and the machine code goes on. All else is left to them.
"""

from __future__ import annotations

from memlab.device.emulator.codegen.check_layout import (
    BLOCK_SCOPE_BIT,
    CHECK_KINDS,
    EVERY_TOOL,
    INITCHECK,
    LEVEL_MASK,
    PENDING_COPY_BIT,
    RACECHECK,
    SIZE_SHIFT,
    THREAD_BITS,
    THREAD_MASK,
    TIME_SHIFT,
    VOLATILE,
    WARP_BITS,
    Check,
    CheckedSpace,
    CheckState,
    Footprint,
)
from memlab.device.emulator.codegen.compiled import compiled, set_bits, unlikely
from memlab.device.emulator.codegen.lanes import (
    ALL_LANES,
    bits_of,
    lane_value,
    lanes_of,
    lowest_bit,
    reduce,
    reversed_bits,
    splat,
)
from memlab.device.emulator.codegen.layout import Context
from memlab.device.emulator.codegen.records import (
    Lanes,
    NarrowLanes,
    Pointer,
    Record,
    Word,
    pointer_to,
    room,
)
from memlab.device.emulator.isa.values import S32, S64, Value, maximum, minimum, where
from memlab.device.properties import WARP_SIZE

_LOAD, _STORE, _ATOMIC, _BARRIER, _WARP_BARRIER, _COLLECTIVE, _OTHER = range(len(CHECK_KINDS))
_FARTHEST_BYTES = 2**31 - 1  # from the first lane's address, in a footprint


class Span(Record):
    """Where lanes access memory, relative to the first one's address."""

    low: int  # least distance
    high: int  # greatest
    ored: int  # bitwise or of them


# --- Instructions ---------------------------------------------------------------------------------


@compiled
def must_report(context: Context, check: Check, mask: Pointer[Word]) -> bool:
    """Whether the tools must look at an instruction that lanes are about to execute."""
    state = check.state[0]
    state.found, state.left = pointer_to(0, Footprint), EVERY_TOOL
    if check.uses_marks and state.has_marks:
        return True
    if check.kind == _OTHER:
        return False
    if check.kind == _BARRIER:
        return lacks_threads(context, check, state)
    if check.kind in (_COLLECTIVE, _WARP_BARRIER):
        return lacks_lanes(context, check, state, mask)
    return must_report_access(context, check, state, mask)


@compiled
def lacks_threads(context: Context, check: Check, state: CheckState) -> bool:
    """Whether threads are missing at a barrier."""
    if context.lanes_running != state.lanes:
        return True
    time = state.time[0]
    state.least_clock = time
    clocks, places = state.clocks.to(Lanes), state.places.to(Lanes)
    for warp in range(context.warps):
        clocks[warp] = splat(time)
        places[warp] = splat(check.index)
    return False


@compiled
def lacks_lanes(context: Context, check: Check, state: CheckState, mask: Pointer[Word]) -> bool:
    """Whether a warp lacks lanes at a collective or a barrier of warps."""
    for warp in range(context.warps):
        if mask[warp] and mask[warp] != ALL_LANES:
            return True
    for warp in range(context.warps):
        if mask[warp]:
            state.places.to(Lanes)[warp] = splat(check.index)
            if check.kind == _WARP_BARRIER:
                state.group_clocks[warp] = state.time[0]
            if check.exchange_times:
                check.exchange_times[warp] = state.time[0]
                check.exchange_partners.to(NarrowLanes)[warp] = splat(-1).to(S32)
    return False


@compiled
def must_report_access(
    context: Context, check: Check, state: CheckState, mask: Pointer[Word]
) -> bool:
    """Whether `state.left` tools must look at an access; for others it is noted, as by them."""
    warp = first_warp(context, mask)
    if warp < 0:
        return False
    first = lane_value(addresses(context, check, warp), lowest_bit(mask[warp]))
    start, span = first + check.offset, room(Span)[0]
    if not (check.needs_written or check.may_race):
        find_span(context, check, mask, first, span)
        return not is_permitted(check, start, span.low, span.high, span.ored)
    if unlikely(not find_footprint(context, check, state, mask, first)):
        find_span(context, check, mask, first, span)
        if span.low < -_FARTHEST_BYTES or span.high > _FARTHEST_BYTES:
            return True
        if not is_permitted(check, start, span.low, span.high, span.ored):
            return True
        make_footprint(context, check, state, mask, first, span)
    footprint, space = state.found[0], check.space[0]
    if not is_permitted(check, start, footprint.low, footprint.high, footprint.ored):
        return True
    base, left = (start - space.origin) >> space.unit_shift, 0
    if check.needs_written and check.kind != _STORE and has_unwritten(footprint, space, base):
        left = INITCHECK
    if check.may_race:
        if must_compare(check, state, footprint, space, base):
            left = left | RACECHECK
        else:
            note_access(check, state, footprint, space, base)
    if check.needs_written and check.kind != _LOAD and left & INITCHECK == 0:
        for number in range(footprint.count):
            space.unwritten[base + footprint.units[number]] = 0
    if left:
        state.left = left
    return left != 0


@compiled
def must_compare(
    check: Check, state: CheckState, footprint: Footprint, space: CheckedSpace, base: int
) -> bool:
    """Whether racecheck must compare a permitted access with earlier ones."""
    # Several lanes that store to one unit may store different values.
    if check.kind == _STORE and footprint.is_contended:
        return True
    # Several lanes may be of several blocks, which an atomic of block scope does not order.
    in_block_only = check.order & BLOCK_SCOPE_BIT != 0
    if in_block_only and footprint.is_contended and space.is_shared_by_blocks:
        return True
    if check.kind == _ATOMIC and not space.updates[0]:
        return True
    if check.is_noncoherent != 0 and was_written(footprint, space, base):
        return True
    if check.is_async_read != 0 and may_lack_proxy_fence(state, footprint, space, base):
        return True
    return state.time[0] + 1 >= state.times or may_race(check, state, footprint, space, base)


# --- Addresses ------------------------------------------------------------------------------------


@compiled
def first_warp(context: Context, mask: Pointer[Word]) -> int:
    """The first warp with lanes, or -1."""
    for warp in range(context.warps):
        if mask[warp]:
            return warp
    return -1


@compiled
def addresses(context: Context, check: Check, warp: int) -> Lanes:
    """The address register of a warp, without the offset."""
    if check.register < 0:
        return splat(0)
    place = context.frames + warp * context.frame_bytes + check.register
    if check.bits == 32:
        narrow: Value = pointer_to(place, NarrowLanes)[0]
        return narrow.to(S64)
    wide: Value = pointer_to(place, Lanes)[0]
    return wide


@compiled
def find_span(context: Context, check: Check, mask: Pointer[Word], first: int, span: Span) -> None:
    """Find where lanes access memory."""
    low, high, ored = splat(0), splat(0), splat(0)
    for warp in range(context.warps):
        word = mask[warp]
        if word:
            distance = addresses(context, check, warp) - splat(first)
            relative = where(lanes_of(word), distance, 0)
            low, high = minimum(low, relative), maximum(high, relative)
            ored = ored | relative
    span.low, span.high, span.ored = reduce(low, "smin"), reduce(high, "smax"), reduce(ored, "or")


@compiled
def is_permitted(check: Check, start: int, low: int, high: int, ored: int) -> bool:
    """Whether lanes that access memory relative to `start` stay inside one permitted array."""
    if start + low > start + high:
        return False  # the span wraps around
    if (start | ored) & (check.size - 1):
        return False
    for number in range(check.array_count):
        first, end = check.arrays[2 * number], check.arrays[2 * number + 1]
        if first <= start + low and start + high <= end - check.size:
            return True
    return False


# --- Footprints -----------------------------------------------------------------------------------


@compiled
def find_footprint(
    context: Context, check: Check, state: CheckState, mask: Pointer[Word], first: int
) -> bool:
    """Find the footprint of an access as `state.found`, if there is one."""
    last = check.footprint
    if last and is_similar(context, check, last[0], mask, first):
        state.found = last
        return True
    for number in range(state.footprint_count):
        known = state.footprints + number
        if is_similar(context, check, known[0], mask, first):
            check.footprint = state.found = known
            return True
    return False


@compiled
def is_similar(
    context: Context, check: Check, footprint: Footprint, mask: Pointer[Word], first: int
) -> bool:
    """Whether a footprint is that of an access."""
    if check.size != footprint.size or check.space.address != footprint.space.address:
        return False
    for warp in range(context.warps):
        word = mask[warp]
        if word != footprint.mask[warp]:
            return False
        if word:
            known = footprint.relative.to(NarrowLanes)[warp].to(S64)
            differs = addresses(context, check, warp) - splat(first) != known
            if bits_of(differs) & word:
                return False
    return True


@compiled
def make_footprint(
    context: Context,
    check: Check,
    state: CheckState,
    mask: Pointer[Word],
    first: int,
    span: Span,
) -> None:
    """Make the footprint of a permitted access as `state.found`, in place of the oldest one."""
    number = state.oldest
    state.oldest = 0 if number + 1 == state.footprint_count else number + 1
    made, space = state.footprints + number, check.space[0]
    footprint = made[0]
    footprint.version += 1
    footprint.space, footprint.size = check.space, check.size
    footprint.low, footprint.high, footprint.ored = span.low, span.high, span.ored
    start = first + check.offset - space.origin
    note_lanes(context, check, footprint, space, mask, first, start)
    list_units(context, footprint, space, start)
    check.footprint = state.found = made


@compiled
def note_lanes(
    context: Context,
    check: Check,
    footprint: Footprint,
    space: CheckedSpace,
    mask: Pointer[Word],
    first: int,
    start: int,
) -> None:
    """Write the addresses to a footprint, and to the scratch memory the last lane at each unit."""
    width = footprint.size >> space.unit_shift
    for warp in range(context.warps):
        word = mask[warp]
        footprint.mask[warp] = word
        if word:
            distance = addresses(context, check, warp) - splat(first)
            footprint.relative.to(NarrowLanes)[warp] = distance.to(S32)
            warp_start = start + warp // context.warps_per_block * space.block_bytes
            for bit in set_bits(word):
                lane = warp * WARP_SIZE + bit
                unit = first_unit(footprint, space, warp_start, lane)
                for part in range(width):
                    space.scratch[unit + part] = lane


@compiled
def list_units(context: Context, footprint: Footprint, space: CheckedSpace, start: int) -> None:
    """List the units that lanes touch, each once.

    From the last lane to the first: a unit is listed by its last lane, which `note_lanes` left in
    the scratch memory. There it gets the complement of its place in the list.
    """
    width, base = footprint.size >> space.unit_shift, start >> space.unit_shift
    lasts, others, warps = footprint.lanes, footprint.others, footprint.warps
    count, is_contended = 0, 0
    for number in range(context.warps):
        warp = context.warps - 1 - number
        warp_start = start + warp // context.warps_per_block * space.block_bytes
        for bit in set_bits(reversed_bits(footprint.mask[warp])):
            lane = warp * WARP_SIZE + (WARP_SIZE - 1) - bit
            unit = first_unit(footprint, space, warp_start, lane)
            for part in range(width):
                entry = space.scratch[unit + part]
                if entry >= 0:
                    space.scratch[unit + part] = ~count
                    footprint.units[count] = unit + part - base
                    lasts[count], others[count], warps[count] = lane, -1, -1
                    count += 1
                else:
                    is_contended = 1
                    others[~entry] = lane
                    if (lasts[~entry] ^ lane) >> WARP_BITS:
                        warps[~entry] = lane
    footprint.count, footprint.is_contended = count, is_contended


@compiled
def first_unit(footprint: Footprint, space: CheckedSpace, warp_start: int, lane: int) -> int:
    """The first unit that a lane touches.

    The accesses of its warp would begin at `warp_start`, were they those of the first lane.
    """
    return (warp_start + lane * space.lane_bytes + footprint.relative[lane]) >> space.unit_shift


# --- Units ----------------------------------------------------------------------------------------


@compiled
def has_unwritten(footprint: Footprint, space: CheckedSpace, base: int) -> bool:
    """Whether lanes touch a unit that nothing was stored to."""
    for number in range(footprint.count):
        if space.unwritten[base + footprint.units[number]]:
            return True
    return False


@compiled
def was_written(footprint: Footprint, space: CheckedSpace, base: int) -> bool:
    """Whether the launch has written to a unit that lanes touch."""
    if space.last_write == 0 and space.last_update == 0:
        return False
    written, updates = space.written, space.updates[0]
    for number in range(footprint.count):
        unit = base + footprint.units[number]
        if written[unit]:
            return True
        if updates and updates[unit]:
            return True
    return False


@compiled
def may_lack_proxy_fence(
    state: CheckState, footprint: Footprint, space: CheckedSpace, base: int
) -> bool:
    """Whether the async proxy may read what threads stored without a proxy fence behind.

    Where the threads that stored have no such fence, this is left to `RaceCheck`.
    """
    if space.last_write == 0:
        return False
    for number in range(footprint.count):
        entry = space.written[base + footprint.units[number]]
        if entry:
            time = (entry & ~PENDING_COPY_BIT) >> TIME_SHIFT
            if state.async_writes[state.steps[time]] == 0:
                lane = footprint.lanes[number]
                thread = state.threads[lane]
                if ((entry ^ thread) & THREAD_MASK) >> THREAD_BITS:
                    return True  # of another block of the cluster
                if state.fence_times[lane + (entry & THREAD_MASK) - thread] < time:
                    return True
    return False


@compiled
def may_race(
    check: Check, state: CheckState, footprint: Footprint, space: CheckedSpace, base: int
) -> bool:
    """Whether an access may race with earlier ones."""
    if may_race_with(
        check, state, footprint, space, base, space.last_write, space.written
    ) or may_race_with_any(check, state, footprint, space, base, space.last_update, space.updates):
        return True
    return check.kind != _LOAD and may_race_with_any(
        check, state, footprint, space, base, space.last_read, space.reads
    )


@compiled
def may_race_with_any(
    check: Check,
    state: CheckState,
    footprint: Footprint,
    space: CheckedSpace,
    base: int,
    latest: int,
    histories: Pointer[Pointer[int]],
) -> bool:
    """The same of the accesses of one kind, as `AccessHistory` keeps them; `latest` is the last."""
    for number in range(3):
        entries = histories[number]
        if entries and may_race_with(check, state, footprint, space, base, latest, entries):
            return True
    return False


@compiled
def may_race_with(
    check: Check,
    state: CheckState,
    footprint: Footprint,
    space: CheckedSpace,
    base: int,
    latest: int,
    entries: Pointer[int],
) -> bool:
    """Whether lanes may race with entries of the shadow memory, as `RaceCheck` decides it.

    This is decided of the last lane at each unit. Where others touch it too, it is left to
    `RaceCheck`.
    """
    if latest == 0 or (not space.is_shared_by_blocks and latest <= state.least_clock):
        return False  # every thread knows all of them
    for number in range(footprint.count):
        entry = entries[base + footprint.units[number]]
        if entry:
            lane = footprint.lanes[number]
            contended = footprint.others[number] >= 0
            if may_conflict(check, state, space, entry, lane, contended):
                return True
    return False


@compiled
def may_conflict(
    check: Check, state: CheckState, space: CheckedSpace, entry: int, lane: int, contended: bool
) -> bool:
    """Whether the access of a lane may race with an entry of the shadow memory."""
    thread = state.threads[lane]
    differing = (entry ^ thread) & THREAD_MASK
    in_other_block = differing >> THREAD_BITS != 0
    is_known = entry <= state.clocks[lane] << TIME_SHIFT | THREAD_MASK
    if is_known and not (space.is_shared_by_blocks and (in_other_block or contended)):
        return False
    if differing == 0 and not contended and entry < PENDING_COPY_BIT:
        return False
    before = state.orders[(entry & ~PENDING_COPY_BIT) >> TIME_SHIFT]
    if are_morally_strong(check.order, before, in_other_block or contended):
        return False
    if contended or in_other_block:
        return True
    other = lane + (entry & THREAD_MASK) - thread
    return not knows(state, lane, other, entry >> TIME_SHIFT)


@compiled
def are_morally_strong(order: int, other: int, in_other_block: bool) -> bool:
    """Whether two accesses do not race whatever their order, as `memory_order` has it."""
    level, other_level = order & LEVEL_MASK, other & LEVEL_MASK
    if level < VOLATILE or other_level < VOLATILE or level + other_level == 2 * VOLATILE:
        return False  # neither is strong
    if in_other_block and (order | other) & BLOCK_SCOPE_BIT != 0:
        return False
    size, other_size = order >> SIZE_SHIFT, other >> SIZE_SHIFT
    return size in (0, other_size) or other_size == 0


@compiled
def knows(state: CheckState, lane: int, other: int, time: int) -> bool:
    """Whether a lane knows what another of its block did, by `HappensBefore.pairwise_clock`."""
    size = state.group
    if size == 0 or lane // size != other // size:
        return False
    group = lane // size
    if time <= state.group_clocks[group]:
        return True
    return time <= state.pair_clocks[lane * size + (other - group * size)]


@compiled
def note_access(
    check: Check, state: CheckState, footprint: Footprint, space: CheckedSpace, base: int
) -> None:
    """Note an access in the shadow memory, as `RaceCheck.access`."""
    time = state.time[0] + 1
    state.time[0] = time
    state.steps[time], state.orders[time] = check.index, check.order
    if check.kind == _LOAD:
        space.last_read = time if space.last_read < time else space.last_read
        note_in_history(state, footprint, base, space.reads)
    elif check.kind == _ATOMIC:
        space.last_update = time
        note_in_history(state, footprint, base, space.updates)
    else:
        space.last_write = time if space.last_write < time else space.last_write
        for number in range(footprint.count):
            lane = footprint.lanes[number]
            unit = base + footprint.units[number]
            space.written[unit] = time << TIME_SHIFT | state.threads[lane]
            if state.store_times:
                state.store_times[lane] = time


@compiled
def note_in_history(
    state: CheckState, footprint: Footprint, base: int, histories: Pointer[Pointer[int]]
) -> None:
    """Note an access at the present time, as `AccessHistory.add`."""
    now, threads = state.time[0] << TIME_SHIFT, state.threads
    last, others, warps = histories[0], histories[1], histories[2]
    for number in range(footprint.count):
        unit, entry = base + footprint.units[number], now | threads[footprint.lanes[number]]
        before = last[unit]
        last[unit] = entry
        differing = (before ^ entry) & THREAD_MASK
        if differing:
            others[unit] = before
        if footprint.others[number] >= 0:
            others[unit] = now | threads[footprint.others[number]]
        if warps:
            if differing >> WARP_BITS:
                warps[unit] = before
            if footprint.warps[number] >= 0:
                warps[unit] = now | threads[footprint.warps[number]]
