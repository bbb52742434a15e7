"""Schedules the groups of lanes of a chunk of blocks, as machine code.

Lanes that diverge at a branch form groups, one per *slot*: a place in the program where a stretch
or an instruction of control begins. The group with the lowest program counter runs first. So lanes
reconverge where their paths join, because compilers mostly lay out code so that the join lies
behind both arms of a branch; where they do not, `program.code_layout` provides the order of the
basic blocks. A group runs until it reaches a slot where another one waits, and joins it there.

A group that reaches a barrier is parked. When no group can run, all barriers open.

The machine code decides what nearly all kernels do. It returns to Python where an instruction is
rare, where lanes spin or wait for each other, and now and then, so that a time limit is kept.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, cast

from memlab.device.emulator.codegen.check_code import must_report
from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.lanes import (
    bits_of,
    call_address,
    count_bits,
    lanes_of,
    reduce,
    splat,
)
from memlab.device.emulator.codegen.layout import (
    REST_COLUMNS,
    STRETCH_KINDS,
    TRIP_CLASSES,
    TRIP_COLUMNS,
    Context,
    Groups,
    Slot,
)
from memlab.device.emulator.codegen.records import Lanes, Pointer, Word, pointer_to
from memlab.device.emulator.codegen.stretch_code import STRETCH_TYPE
from memlab.device.emulator.isa.values import Value, where

_CODE, _BRANCH, _EXIT, _BARRIER, _PYTHON, _END = range(len(STRETCH_KINDS))
_NO_SLOT = -1
_LAST = 2**62  # behind all places in the order of slots
_STRETCH_COST = 8  # what a stretch costs besides its warps, in warps


class Status(IntEnum):
    """Why the machine code returns."""

    RUNNING = 0
    """There is more to do."""
    DONE = 1
    """No lane is left."""
    FAULT = 2
    """An access was at fault."""
    WAITING = 3
    """No group can run, and only Python knows which goes on."""
    AT_PYTHON = 4
    """The group is at an instruction that Python executes."""
    INCOMPLETE = 5
    """The group is at a collective, and lanes of its warps are elsewhere."""
    POLLS = 6
    """Lanes, those of `taken`, branch back to the head of a loop that polls memory."""
    PAUSED = 7
    """`work_left` is used up."""


# --- Groups ---------------------------------------------------------------------------------------


@compiled
def add_group(context: Context, groups: Groups, slot: int, mask: Pointer[Word]) -> None:
    """Add lanes to the ready or parked groups; a mask without lanes adds a group without lanes."""
    words = groups.masks + slot * context.warps
    if groups.present[slot]:
        for warp in range(context.warps):
            words[warp] |= mask[warp]
    else:
        groups.present[slot] = 1
        groups.slots[groups.count] = slot
        groups.count += 1
        for warp in range(context.warps):
            words[warp] = mask[warp]


@compiled(exported=True)
def enqueue(context: Context, slot: int, mask: Pointer[Word]) -> int:
    """Add lanes to the ready groups."""
    add_group(context, context.ready, slot, mask)
    return Status.RUNNING


@compiled(exported=True)
def enqueue_parked(context: Context, slot: int, mask: Pointer[Word]) -> int:
    """Add lanes to the parked groups."""
    add_group(context, context.parked, slot, mask)
    return Status.RUNNING


def call_depths(context: Context, warp: int) -> Value:
    """How deep the calls of each lane of a warp are nested: the deeper, the larger the number."""
    place = context.frames + warp * context.frame_bytes + context.depth
    return cast(Value, pointer_to(place, Lanes)[0])


@compiled
def deepest(context: Context, mask: Pointer[Word]) -> int:
    """The greatest depth of the calls of some lanes."""
    most = 0
    for warp in range(context.warps):
        if mask[warp]:
            depths = where(lanes_of(mask[warp]), call_depths(context, warp), 0)
            most = max(most, reduce(depths, "umax"))
    return most


@compiled
def lanes_at_depth(context: Context, warp: int, word: int, depth: int) -> int:
    """The lanes of a warp, of some lanes, whose calls are of a depth; all where there are none."""
    if context.depth < 0:
        return word
    return word & bits_of(call_depths(context, warp) == splat(depth))


@compiled
def has_depth(context: Context, mask: Pointer[Word], depth: int) -> int:
    """Whether some lanes are of a depth."""
    if context.depth < 0:
        return 1
    for warp in range(context.warps):
        if mask[warp] and lanes_at_depth(context, warp, mask[warp], depth):
            return 1
    return 0


@compiled
def greatest_depth(context: Context) -> int:
    """The greatest depth of the calls of lanes in ready groups; 0 where there are no calls."""
    ready, most = context.ready, 0
    if context.depth >= 0:
        for place in range(ready.count):
            most = max(most, deepest(context, ready.masks + ready.slots[place] * context.warps))
    return most


@compiled
def find_first(context: Context, depth: int) -> int:
    """The ready group that comes first in the order, of a depth: its place in the list, or -1."""
    ready = context.ready
    first, least = -1, _LAST
    for place in range(ready.count):
        slot = ready.slots[place]
        order = context.stretches[slot].order
        if order < least and has_depth(context, ready.masks + slot * context.warps, depth):
            least, first = order, place
    return first


@compiled(exported=True)
def dequeue(context: Context) -> int:
    """Choose the ready lanes that run next; there must be some.

    Those whose calls are nested deepest run first, and of these the group that comes first.
    """
    ready, depth = context.ready, greatest_depth(context)
    place = find_first(context, depth)
    slot = ready.slots[place]
    context.slot = slot
    words, mask = ready.masks + slot * context.warps, context.mask
    lanes, warps, left = 0, 0, 0
    for warp in range(context.warps):
        word = words[warp]
        chosen = lanes_at_depth(context, warp, word, depth)
        mask[warp] = chosen
        words[warp] = word & ~chosen
        left |= words[warp]
        lanes += count_bits(chosen)
        warps += chosen != 0
    if not left:
        ready.count -= 1
        ready.slots[place] = ready.slots[ready.count]
        ready.present[slot] = 0
    context.lanes_running, context.warps_running = lanes, warps
    following = find_first(context, depth)
    context.limit = _NO_SLOT
    if following >= 0:
        context.limit = ready.slots[following]
        _limit_by_order(context, slot, context.limit)
    context.path_continues = 0
    return Status.RUNNING


@compiled
def _limit_by_order(context: Context, running: int, waiting: int) -> None:
    """Set the limit where basic blocks run in another order: as `BasicBlockOrder.limit`."""
    order = context.stretches[waiting].order
    for number in range(context.order_count):
        end = context.order_starts[number]
        if end > running:
            if running < waiting < end:
                context.limit = waiting
                return
            if context.stretches[end].order >= order:
                context.limit = end
                return


@compiled(exported=True)
def proceed(context: Context) -> int:
    """Let the running group go on behind its slot."""
    following = context.stretches[context.slot].next
    context.slot = following
    if following == context.limit:
        enqueue(context, following, context.mask)
        dequeue(context)
    return Status.RUNNING


@compiled(exported=True)
def jump(context: Context, slot: int) -> int:
    """Send the running group to another slot."""
    context.slot = slot
    context.path_continues = 0
    if context.ready.count:
        enqueue(context, slot, context.mask)
        dequeue(context)
    return Status.RUNNING


@compiled(exported=True)
def split(context: Context, target: int, following: int) -> int:
    """Send the lanes in `taken` to one slot and the others to another."""
    mask, taken = context.mask, context.taken
    for warp in range(context.warps):
        mask[warp] &= ~taken[warp]
    enqueue(context, target, taken)
    enqueue(context, following, mask)
    return dequeue(context)


@compiled(exported=True)
def next_group(context: Context) -> int:
    """Run another group, after the running one has exited or waits."""
    ready, parked = context.ready, context.parked
    if ready.count == 0:
        if (parked.count and not context.opens_barriers) or context.others_wait:
            return Status.WAITING
        if parked.count == 0:
            return Status.DONE
        for number in range(parked.count):
            slot = parked.slots[number]
            parked.present[slot] = 0
            enqueue(context, slot, parked.masks + slot * context.warps)
        parked.count = 0
    return dequeue(context)


@compiled(exported=True)
def park(context: Context, slot: int) -> int:
    """Hold the running group at a barrier; it goes on at a slot."""
    is_alone = context.ready.count + context.parked.count == 0 and context.opens_barriers
    if is_alone and context.lanes_running == context.lanes_live:
        context.slot = slot
        context.path_continues = 0
        return Status.RUNNING
    enqueue_parked(context, slot, context.mask)
    return next_group(context)


@compiled
def leave(context: Context) -> int:
    """End the running group."""
    live, mask = context.live, context.mask
    for warp in range(context.warps):
        live[warp] &= ~mask[warp]
    context.lanes_live -= context.lanes_running
    return next_group(context)


# --- Execution ------------------------------------------------------------------------------------


@compiled(exported=True)
def evaluate_guard(context: Context) -> int:
    """Set `taken` at an instruction that may be guarded; gives how many lanes these are."""
    slot = context.stretches[context.slot]
    mask, taken, count = context.mask, context.taken, 0
    for warp in range(context.warps):
        word = mask[warp]
        if slot.guard >= 0:
            place = context.frames + warp * context.frame_bytes + slot.guard
            word &= pointer_to(place, Word)[0] ^ -slot.negated
        taken[warp] = word
        count += count_bits(word)
    return count


@compiled(exported=True)
def count_range(context: Context, start: int, stop: int) -> int:
    """Count instructions that the running group executes."""
    context.lanes_change[start] += context.lanes_running
    context.lanes_change[stop] -= context.lanes_running
    context.warps_change[start] += context.warps_running
    context.warps_change[stop] -= context.warps_running
    if context.path:
        _extend_path(context, start, stop)
    return Status.RUNNING


@compiled
def _extend_path(context: Context, start: int, stop: int) -> None:
    """Record instructions in the path of a block's warps."""
    mask, lengths, warps = context.mask + context.path_first, context.path_lengths, 0
    for warp in range(context.warps_per_block):
        if mask[warp]:
            warps |= 1 << warp
            lengths[warp] += stop - start
            lanes, row = count_bits(mask[warp]), warp * (context.steps + 1)
            context.path_warps[row + start] += 1
            context.path_warps[row + stop] -= 1
            context.path_lanes[row + start] += lanes
            context.path_lanes[row + stop] -= lanes
    if warps == 0:
        return
    if context.path_continues:
        context.path[context.path_count - 1].stop = stop
    elif context.path_count < context.path_limit:
        entry = context.path[context.path_count]
        entry.start, entry.stop, entry.warps = start, stop, warps
        context.path_count += 1
        context.path_continues = 1


@compiled
def count_trip(context: Context, loop: int) -> None:
    """Count that the running group is at the head of a loop.

    Lanes that enter a loop together reconverge before they enter it again. So those that come from
    its end have all made the same number of trips, and one counter for a loop is enough.
    """
    trip = context.next_trips[loop] + 1
    context.trips[loop] = trip
    context.next_trips[loop] = 0
    place = loop * TRIP_COLUMNS + (trip & (TRIP_CLASSES - 1))
    is_power = trip <= TRIP_CLASSES and trip & (trip - 1) == 0
    power = loop * TRIP_COLUMNS + TRIP_CLASSES + count_bits(trip - 1)
    context.trip_lanes[place] += context.lanes_running
    context.trip_warps[place] += context.warps_running
    if trip == 1 and context.parted[loop]:  # lanes have left it elsewhere than at its end
        context.parted[loop] = 0
        for warp in range(context.warps):
            context.left_at[loop * context.warps + warp] = 0
    if is_power:
        context.trip_lanes[power] += context.lanes_running
        context.trip_warps[power] += context.warps_running
    if context.path:
        mask, row = context.mask + context.path_first, context.loops * TRIP_COLUMNS
        for warp in range(context.warps_per_block):
            if mask[warp]:
                lanes, start = count_bits(mask[warp]), warp * row
                context.path_trip_lanes[start + place] += lanes
                context.path_trip_warps[start + place] += 1
                if is_power:
                    context.path_trip_lanes[start + power] += lanes
                    context.path_trip_warps[start + power] += 1


@compiled
def _count_rests(rests: Pointer[int], at: int, count: int) -> None:
    """Count warps whose lanes left a loop at some trips, as bits, in the columns of `rests`."""
    unrolled, column, word = TRIP_CLASSES, REST_COLUMNS, at
    while unrolled > 1:
        column -= unrolled
        below = word
        shift = 1
        while shift < unrolled:
            below |= below >> shift
            shift *= 2
        rests[column + count_bits(below) - 1] += count
        unrolled //= 2
        word = (word | word >> unrolled) & ((1 << unrolled) - 1)


@compiled
def count_leaving(context: Context, loop: int, staying: int) -> None:
    """Count the lanes that leave a loop at its end, where `taken` are those that stay in it.

    Where they all have stayed together until now, one of them stands for all.
    """
    mask, taken, rests = context.mask, context.taken, context.rests + loop * REST_COLUMNS
    at = 1 << (context.trips[loop] & (TRIP_CLASSES - 1))
    left_at, together = context.left_at + loop * context.warps, context.parted[loop] == 0
    context.parted[loop] = staying != 0
    all_leave = together and staying == 0
    if all_leave:
        _count_rests(rests, at, context.warps_running)
        if not context.path:
            return
    for warp in range(context.warps):
        if mask[warp] & ~taken[warp]:
            left_at[warp] |= at
            if taken[warp] == 0:
                if not all_leave:
                    _count_rests(rests, left_at[warp], 1)
                of_block = warp - context.path_first
                if context.path and of_block >= 0 and of_block < context.warps_per_block:
                    place = (of_block * context.loops + loop) * REST_COLUMNS
                    _count_rests(context.path_rests + place, left_at[warp], 1)
                left_at[warp] = 0


@compiled
def count_branch(context: Context, index: int, count: int) -> None:
    """Count the lanes in `taken`, which branch or exit, and the warps that have some."""
    mask, taken, warps, parted = context.mask, context.taken, context.warps_running, 0
    if count < context.lanes_running:
        warps = 0
        for warp in range(context.warps):
            if taken[warp]:
                warps += 1
                parted += (mask[warp] & ~taken[warp]) != 0
    context.taken_lanes[index] += count
    context.taken_warps[index] += warps
    context.parted_warps[index] += parted


@compiled
def count_slot(context: Context, slot: Slot) -> int:
    """Count the instructions of a slot that the running group executes."""
    if slot.loop >= 0:
        count_trip(context, slot.loop)
    return count_range(context, slot.start, max(slot.stop, slot.start + 1))


@compiled(exported=True)
def execute(context: Context, slot: Slot, mask: Pointer[Word]) -> int:
    """Call the stretch of a slot for each warp with lanes; gives its faults."""
    code, number, faults = slot.code, slot.number, 0
    work, executed = context.warp_work, slot.stop - slot.start
    for warp in range(context.warps):
        word = mask[warp]
        if word:
            work[warp] += executed
            frame = context.frames + warp * context.frame_bytes
            faults |= call_address(STRETCH_TYPE, code, context, frame, word, warp, number)
    return faults


@compiled
def execute_slot(context: Context, slot: Slot) -> int:
    """Execute the stretch of a slot."""
    faults = execute(context, slot, context.mask)
    context.clock += slot.clock
    return Status.FAULT if faults else Status.RUNNING


@compiled
def has_absent_lanes(context: Context) -> int:
    """Whether lanes of the running group's warps are elsewhere."""
    for warp in range(context.warps):
        word = context.mask[warp]
        if word and context.live[warp] & ~word:
            return 1
    return 0


@compiled(exported=True)
def advance(context: Context) -> int:
    """Execute the stretch at the running group's slot."""
    slot = context.stretches[context.slot]
    if slot.kind == _CODE:
        if slot.waits and not context.has_arrived and has_absent_lanes(context):
            return Status.INCOMPLETE
        context.has_arrived = 0
        if slot.check:
            mask = context.mask
            if slot.guard >= 0:
                evaluate_guard(context)
                mask = context.taken
            context.asks_python = must_report(context, slot.check[0], mask)
            if context.asks_python:
                return count_slot(context, slot)
        context.run += 1
        if execute_slot(context, slot):
            return Status.FAULT
    if slot.next:
        count_slot(context, slot)
    return Status.RUNNING


@compiled(exported=True)
def transfer(context: Context) -> int:
    """Execute what lies at the slot besides code, and decide where the group goes on."""
    slot = context.stretches[context.slot]
    if context.asks_python:
        context.asks_python = 0
        return Status.AT_PYTHON
    if slot.kind == _CODE:
        return proceed(context)
    if slot.kind == _END:
        return leave(context)
    if slot.kind == _PYTHON:
        return Status.AT_PYTHON
    count = context.lanes_running
    if slot.guard >= 0 or slot.polls:
        count = evaluate_guard(context)
    if count:
        count_branch(context, slot.start, count)
    if slot.closes >= 0:
        if count < context.lanes_running:
            count_leaving(context, slot.closes, count)
        if count:
            context.next_trips[slot.closes] = context.trips[slot.closes]
    if count == 0:
        return jump(context, slot.next)
    if slot.polls:
        return Status.POLLS
    if count < context.lanes_running:
        if slot.kind == _BRANCH:
            return split(context, slot.target, slot.next)
        # Lanes that exit or wait lie lowest: they go on here, and the others behind.
        split(context, context.slot, slot.next)
    if slot.kind == _BRANCH:
        return jump(context, slot.target)
    if slot.kind == _EXIT:
        return leave(context)
    if slot.check and not must_report(context, slot.check[0], context.mask):
        return jump(context, slot.next)
    return park(context, slot.next)


@compiled(exported=True)
def run(context: Context) -> int:
    """Execute and transfer until something is left to Python."""
    while True:
        context.work_left -= context.warps_running + _STRETCH_COST
        if context.work_left < 0:
            return Status.PAUSED
        status = advance(context)
        if status:
            return status
        status = transfer(context)
        if status:
            return status


SCHEDULE: tuple[Any, ...] = (
    enqueue,
    enqueue_parked,
    dequeue,
    proceed,
    jump,
    split,
    next_group,
    park,
    evaluate_guard,
    count_range,
    execute,
    advance,
    transfer,
    run,
)
"""What Python calls: functions of the address of a context and of numbers, that give a number."""
