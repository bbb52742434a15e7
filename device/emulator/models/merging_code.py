"""Blocks that read and compute in turns, and the coalescers of their reads, as machine code.

A block asks for all reads of a round at once, waits for the last one, and computes. The blocks of
a multiprocessor share its clocks: the oldest of those that have work to do is served, or where they
queue for the L1, all in turn. Of the reads
of a sector by a group of multiprocessors, those that come to its coalescer before the data of the
first one get what it brings.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.llvm import library_of
from memlab.device.emulator.codegen.records import Int32, Pointer, Record
from memlab.device.emulator.models.clocks import later

_HAS_ENDED = 1  # the version of a block's event by which it makes room for another one


class Event(Record):
    """Something that happens."""

    time: float  # clocks
    number: int  # the block whose data comes, or the complement of the SM that has computed
    version: int  # of the SM's computations: an older one has become void; or `_HAS_ENDED`


class Multiprocessor(Record):
    """An SM."""

    group: Int32  # that shares a coalescer
    count: Int32  # how many blocks compute
    computing: Pointer[Int32]  # these, the oldest first
    since: float  # when their work was brought up to date
    version: int


class Block(Record):
    """A block."""

    next: int  # its next read
    end: int  # that behind its last one
    left: float  # of these
    multiprocessor: int
    begun: float  # when it starts, clocks


class UnderWay(Record):
    """A read of a place by a group."""

    until: float  # when others can no longer join
    arrival: float  # when the data comes
    readers: int


class Merging(Record):
    """A simulation."""

    events: Pointer[Event]  # a heap: room for three for each block and each read
    event_count: int
    multiprocessors: Pointer[Multiprocessor]
    blocks: Pointer[Block]
    block_count: int
    started: int
    next_start: float  # the earliest time at which the next block starts
    first_wave: int  # blocks that start at once
    rounds: Pointer[Int32]  # by read
    places: Pointer[Int32]  # by read: what it reads, by a number from 0
    units: Pointer[Int32]  # by read: what a miss of it brings to the L2, by a number from 0
    sectors: Pointer[float]  # by read
    rests: Pointer[float]  # by read: clocks from the first to the last of its lines, in the L2
    memory_rests: Pointer[float]  # the same of lines in DRAM
    work: Pointer[float]  # by read: clocks that its block computes after the round, alone
    place_count: int
    under_way: Pointer[UnderWay]  # by group and place
    arrivals: Pointer[float]  # by unit: when the L2 has it; negative for never asked
    normals: Pointer[float]  # of the standard normal distribution, used in turn
    normal_count: int
    normals_used: int
    most_readers: int
    coalescer_clocks: float  # the way to the coalescer and back
    latency: float  # of the L2, clocks
    deviation: float
    memory_latency: float  # of DRAM, clocks
    memory_deviation: float
    pace_deviation: float  # of the clocks that a block computes, relative, by each other that does
    start_clocks: float  # between starts of blocks
    duration_deviation: float  # of the time from the start of a block to its end, relative
    in_turn: int  # 1 where the blocks of an SM share its clocks, 0 where it serves the oldest
    asked: Pointer[float]  # sectors that blocks of the first wave, and later ones, ask for
    read: Pointer[float]  # those of them that the L2 reads
    asked_at: Pointer[float]  # by read: when its block asks for it, clocks


@cache
def function() -> Any:
    """The simulation as a Python callable of the address of a `Merging`."""
    library = library_of("merging", Path(__file__).parent, merge)
    return library.function("merge", ctypes.c_int64, ctypes.c_int64)


@compiled
def push(state: Merging, time: float, number: int, version: int) -> None:
    """Add an event."""
    place = state.event_count
    state.event_count += 1
    while place > 0:
        parent = (place - 1) // 2
        above = state.events[parent]
        if above.time <= time:
            break
        here = state.events[place]
        here.time, here.number, here.version = above.time, above.number, above.version
        place = parent
    new = state.events[place]
    new.time, new.number, new.version = time, number, version


@compiled
def pop(state: Merging) -> None:
    """Remove the first event."""
    state.event_count -= 1
    last = state.events[state.event_count]
    time, number, version = last.time, last.number, last.version
    place, child = 0, 1
    while child < state.event_count:
        other = child + 1
        if other < state.event_count and state.events[other].time < state.events[child].time:
            child = other
        below = state.events[child]
        if below.time >= time:
            break
        here = state.events[place]
        here.time, here.number, here.version = below.time, below.number, below.version
        place = child
        child = 2 * place + 1
    new = state.events[place]
    new.time, new.number, new.version = time, number, version


@compiled
def normal(state: Merging) -> float:
    """The next random number of the standard normal distribution."""
    drawn = state.normals[state.normals_used % state.normal_count]
    state.normals_used += 1
    return drawn


@compiled
def ask(state: Merging, number: int, time: float, read: int) -> float:
    """Ask for a place: the time at which its data comes."""
    block, place, unit = state.blocks[number], state.places[read], state.units[read]
    group = state.multiprocessors[block.multiprocessor].group
    wave = 0
    if number >= state.first_wave:
        wave = 1
    sectors = state.sectors[read]
    state.asked[wave] += sectors
    other = state.under_way[group * state.place_count + place]
    if time < other.until and other.readers < state.most_readers:
        other.readers += 1
        return later(other.arrival, time + state.coalescer_clocks)
    state.read[wave] += sectors
    held, way_back = state.arrivals[unit], state.latency / 2.0
    if held < 0.0:
        drawn = state.memory_latency + state.memory_deviation * normal(state)
        first = time + later(drawn, state.latency)
        other.arrival = first + state.memory_rests[read]
        state.arrivals[unit] = other.arrival - way_back
    else:
        drawn = state.latency + state.deviation * normal(state)
        first = later(time + later(drawn, way_back), held + way_back)
        other.arrival = first + state.rests[read]
    other.readers = 1
    other.until = first - state.coalescer_clocks
    return other.arrival


@compiled
def read_round(state: Merging, number: int, time: float) -> None:
    """Ask for what a block reads in its next round."""
    block = state.blocks[number]
    arrival = time
    if block.next < block.end:
        now = state.rounds[block.next]
        while block.next < block.end and state.rounds[block.next] == now:
            state.asked_at[block.next] = time
            arrival = later(arrival, ask(state, number, time, block.next))
            block.next += 1
    push(state, arrival, number, 0)


@compiled
def compute(state: Merging, sm: Multiprocessor, time: float) -> None:
    """Bring the work of an SM's blocks up to date: the oldest is served, or all are in turn."""
    if state.in_turn == 1:
        for place in range(sm.count):
            state.blocks[sm.computing[place]].left -= (time - sm.since) / float(sm.count)
    elif sm.count > 0:
        state.blocks[sm.computing[0]].left -= time - sm.since
    sm.since = time


@compiled
def first_to_end(state: Merging, sm: Multiprocessor) -> int:
    """The place of the block that ends its work first among those that compute."""
    first = 0
    if state.in_turn == 1:
        for place in range(sm.count):
            if state.blocks[sm.computing[place]].left < state.blocks[sm.computing[first]].left:
                first = place
    return first


@compiled
def expect(state: Merging, number: int) -> None:
    """Expect the end of the work of the block that is served, or of the one that has least."""
    sm = state.multiprocessors[number]
    sm.version += 1
    if sm.count > 0:
        left = later(state.blocks[sm.computing[first_to_end(state, sm)]].left, 0.0)
        if state.in_turn == 1:
            left *= float(sm.count)
        push(state, sm.since + left, -1 - number, sm.version)


@compiled
def begin_work(state: Merging, number: int, time: float) -> None:
    """A block has its data, and computes."""
    block = state.blocks[number]
    sm = state.multiprocessors[block.multiprocessor]
    noise = state.pace_deviation * float(sm.count)
    clocks = 0.0
    if block.next > 0:
        clocks = state.work[block.next - 1]
    block.left = later(clocks * (1.0 + noise * normal(state)), 0.0)
    compute(state, sm, time)
    place = sm.count
    sm.count += 1
    while place > 0 and sm.computing[place - 1] > number:
        sm.computing[place] = sm.computing[place - 1]
        place -= 1
    sm.computing[place] = number
    expect(state, block.multiprocessor)


@compiled
def end_work(state: Merging, number: int, time: float) -> None:
    """A block has computed, and reads on, or ends."""
    sm = state.multiprocessors[number]
    compute(state, sm, time)
    first = first_to_end(state, sm)
    block = sm.computing[first]
    sm.count -= 1
    for place in range(first, sm.count):
        sm.computing[place] = sm.computing[place + 1]
    if state.blocks[block].next < state.blocks[block].end:
        read_round(state, block, time)
    else:
        longer = state.duration_deviation * normal(state)
        lasts = (time - state.blocks[block].begun) * later(longer, -longer)
        push(state, time + lasts, block, _HAS_ENDED)
    expect(state, number)


@compiled
def start(state: Merging, number: int, time: float) -> None:
    """Start the next block on an SM: blocks start one after the other."""
    block = state.started
    state.started += 1
    begun = later(time, state.next_start)
    state.next_start = begun + state.start_clocks
    state.blocks[block].multiprocessor = number
    state.blocks[block].begun = begun
    read_round(state, block, begun)


@compiled(exported=True)
def merge(state: Merging, multiprocessors: int) -> int:
    """Run all blocks."""
    while state.started < state.first_wave:
        start(state, state.started % multiprocessors, 0.0)
    while state.event_count > 0:
        first = state.events[0]
        time, number, version = first.time, first.number, first.version
        pop(state)
        if number >= 0 and version == _HAS_ENDED:
            if state.started < state.block_count:
                start(state, state.blocks[number].multiprocessor, time)
        elif number >= 0:
            begin_work(state, number, time)
        elif state.multiprocessors[-1 - number].version == version:
            end_work(state, -1 - number, time)
    return 0
