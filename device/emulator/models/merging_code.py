"""Readers that read and compute in turns, and the coalescers of their reads, as machine code.

A reader is a block whose threads wait for one another, or a warp of one whose threads do not. It
asks for all reads of a round at once, waits for the last one, and computes. The readers of a
multiprocessor share its clocks: the oldest of those that have work to do is served, or where they
queue for the L1, all in turn. What one of its warps has asked for, another one does not ask for
again. Of the reads of a sector by a group of multiprocessors, those that come to its coalescer
before the data of the first one get what it brings, unless another one of the same partition has
asked for other sectors of the line since.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.llvm import library_of
from memlab.device.emulator.codegen.records import Byte, Int32, Pointer, Record
from memlab.device.emulator.models.cache_records import HASH
from memlab.device.emulator.models.clocks import later

_HASH_SHIFT = 20
_NEIGHBOURS = 2
"""How many groups of one partition of the L2 receive blocks one after the other. Reads of 16 blocks
and of the next 16, which fill a GPC each, disturb each other: of those of one line 0.60 to 0.69
were left with one block on an SM (docs/results/h200-column-reads.csv: 16 readers, `split` 2)."""
_HAS_ENDED = 1  # the version of a block's event by which it makes room for another one
_ASKS = 2  # that of a reader's event by which it begins its first round


class Event(Record):
    """Something that happens."""

    time: float  # clocks
    number: int  # the reader whose data comes, or the complement of the SM that has computed
    version: int  # of the SM's computations: an older one has become void; or `_HAS_ENDED`


class Multiprocessor(Record):
    """An SM."""

    group: Int32  # that shares a coalescer
    count: Int32  # how many readers compute
    computing: Pointer[Int32]  # these, the oldest first
    since: float  # when their work was brought up to date
    version: int


class Reader(Record):
    """A block whose threads wait for one another, or a warp."""

    next: int  # its next read
    end: int  # that behind its last one
    work: float  # clocks that it computes next, alone
    left: float  # of these
    block: int


class Block(Record):
    """A block."""

    first: int  # of its readers
    end: int  # that behind its last one
    live: int  # how many of them have not ended
    multiprocessor: int
    begun: float  # when it starts, clocks


class Held(Record):
    """What an L1 has asked for."""

    key: int  # of a place and a multiprocessor, from 1; 0 for none
    arrival: float  # when the data comes


class Line(Record):
    """Which sectors of a line can be joined by the groups of a partition of the L2."""

    place: int  # -1 for none
    until: float  # when none of the reads of them can be joined any more
    version: int  # of these reads


class UnderWay(Record):
    """The last read of a line by a group that can be joined."""

    version: int  # that of its line
    until: float  # when others can no longer join
    arrival: float  # when the data comes
    readers: int


class Merging(Record):
    """A simulation."""

    events: Pointer[Event]  # a heap: room for three for each round of a reader, one for a block
    event_count: int
    multiprocessors: Pointer[Multiprocessor]
    readers: Pointer[Reader]
    blocks: Pointer[Block]
    block_count: int
    started: int
    next_start: float  # the earliest time at which the next block starts
    first_wave: int  # blocks that start at once
    rounds: Pointer[Int32]  # by read
    places: Pointer[Int32]  # by read: what it reads, by a number from 0
    lines: Pointer[Int32]  # by read: the line in which it lies, and its turn, by a number from 0
    apart: Pointer[float]  # by read: the share of its sectors that are not merged
    units: Pointer[Int32]  # by read: what a miss of it brings to the L2, by a number from 0
    sectors: Pointer[float]  # by read
    rests: Pointer[float]  # by read: clocks from the first to the last of its lines, in the L2
    memory_rests: Pointer[float]  # the same of lines in DRAM
    work: Pointer[float]  # by read: clocks that its reader computes after the round, alone
    cached: Pointer[Byte]  # by read: whether the L1 can have it; else it is known to miss
    homes: Pointer[Byte]  # by read: the partition of the L2 in front of its memory
    partitions: int
    place_count: int
    line_count: int
    under_way: Pointer[UnderWay]  # by group, line and turn
    open_lines: Pointer[Line]  # by partition, line and turn
    held: Pointer[Held]  # a table of hashes
    held_bits: int  # of the number of its entries
    arrivals: Pointer[float]  # by unit: when its home in the L2 has it; negative for never asked
    copies: Pointer[float]  # by place: when the other partition has it; negative for never asked
    normals: Pointer[float]  # of the standard normal distribution, used in turn
    normal_count: int
    normals_used: int
    most_readers: int
    coalescer_clocks: float  # the way to the coalescer and back
    latency: float  # of the reader's partition of the L2, clocks
    deviation: float
    way_between: float  # from one partition to the other and back, clocks
    memory_latency: float  # of DRAM behind the reader's partition, clocks
    memory_deviation: float
    pace_deviation: float  # of the clocks that one computes, relative, by each other that does
    start_clocks: float  # between starts of blocks
    start_deviation: float  # of the time from the start of a block to its first read, clocks
    duration_deviation: float  # of the time from the start of a block to its end, relative
    in_turn: int  # 1 where the readers of an SM share its clocks, 0 where it serves the oldest
    asked: Pointer[float]  # sectors that blocks of the first wave, and later ones, ask for
    read: Pointer[float]  # those of them that the L2 reads
    asked_at: Pointer[float]  # by read: when its reader asks for it, clocks


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
    partition = group // _NEIGHBOURS % state.partitions
    line = state.open_lines[partition * state.line_count + state.lines[read]]
    other = state.under_way[group * state.line_count + state.lines[read]]
    if (
        line.place == place
        and other.version == line.version
        and time < other.until
        and other.readers < state.most_readers
    ):
        other.readers += 1
        state.read[wave] += sectors * state.apart[read]
        return later(other.arrival, time + state.coalescer_clocks)
    state.read[wave] += sectors
    way_back, further = state.latency / 2.0, 0.0
    held = state.arrivals[unit]
    if partition != state.homes[read]:
        further = state.way_between
        if state.copies[place] >= 0.0:
            held, further = state.copies[place], 0.0
    if held < 0.0:
        drawn = state.memory_latency + further + state.memory_deviation * normal(state)
        first = time + later(drawn, state.latency)
        arrival = first + state.memory_rests[read]
        state.arrivals[unit] = first + state.memory_rests[read] - way_back - further / 2.0
    else:
        drawn = state.latency + further + state.deviation * normal(state)
        begins = time + later(drawn, way_back)
        first = later(begins, held + way_back + further / 2.0)
        arrival = later(first, begins + state.rests[read])
    if further > 0.0:
        state.copies[place] = arrival - way_back
    until = first - state.coalescer_clocks
    if line.place != place:
        line.version += 1
        if line.place >= 0 and time < line.until:
            line.place = -1  # neither can be joined
            return arrival
        line.place, line.until = place, until
    line.until = later(line.until, until)
    other.version, other.readers, other.until, other.arrival = line.version, 1, until, arrival
    return arrival


@compiled
def find(state: Merging, key: int) -> int:
    """Where the table of what the L1s have asked for has a key, or has room for it."""
    last = (1 << state.held_bits) - 1
    entry = key * HASH >> _HASH_SHIFT & last
    while state.held[entry].key != 0 and state.held[entry].key != key:
        entry = entry + 1 & last
    return entry


@compiled
def ask_l1(state: Merging, number: int, time: float, read: int) -> float:
    """Ask the L1 for a place: the time at which its data is there."""
    if state.cached[read] == 0:
        return ask(state, number, time, read)
    key = state.blocks[number].multiprocessor * state.place_count + state.places[read] + 1
    held = state.held[find(state, key)]
    if held.key == 0:
        held.key = key
        held.arrival = ask(state, number, time, read)
    return later(held.arrival, time)


@compiled
def read_round(state: Merging, number: int, time: float) -> None:
    """Ask for what a reader reads in its next round."""
    reader = state.readers[number]
    arrival = time
    if reader.next < reader.end:
        now = state.rounds[reader.next]
        while reader.next < reader.end and state.rounds[reader.next] == now:
            state.asked_at[reader.next] = time
            arrival = later(arrival, ask_l1(state, reader.block, time, reader.next))
            reader.next += 1
        reader.work = state.work[reader.next - 1]
    push(state, arrival, number, 0)


@compiled
def compute(state: Merging, sm: Multiprocessor, time: float) -> None:
    """Bring the work of an SM's readers up to date: the oldest is served, or all are in turn."""
    if state.in_turn == 1:
        for place in range(sm.count):
            state.readers[sm.computing[place]].left -= (time - sm.since) / float(sm.count)
    elif sm.count > 0:
        state.readers[sm.computing[0]].left -= time - sm.since
    sm.since = time


@compiled
def first_to_end(state: Merging, sm: Multiprocessor) -> int:
    """The place of the reader that ends its work first among those that compute."""
    first = 0
    if state.in_turn == 1:
        for place in range(sm.count):
            if state.readers[sm.computing[place]].left < state.readers[sm.computing[first]].left:
                first = place
    return first


@compiled
def expect(state: Merging, number: int) -> None:
    """Expect the end of the work of the reader that is served, or of the one that has least."""
    sm = state.multiprocessors[number]
    sm.version += 1
    if sm.count > 0:
        left = later(state.readers[sm.computing[first_to_end(state, sm)]].left, 0.0)
        if state.in_turn == 1:
            left *= float(sm.count)
        push(state, sm.since + left, -1 - number, sm.version)


@compiled
def begin_work(state: Merging, number: int, time: float) -> None:
    """A reader has its data, and computes."""
    reader = state.readers[number]
    at = state.blocks[reader.block].multiprocessor
    sm = state.multiprocessors[at]
    noise = state.pace_deviation * float(sm.count)
    reader.left = later(reader.work * (1.0 + noise * normal(state)), 0.0)
    compute(state, sm, time)
    place = sm.count
    sm.count += 1
    while place > 0 and sm.computing[place - 1] > number:
        sm.computing[place] = sm.computing[place - 1]
        place -= 1
    sm.computing[place] = number
    expect(state, at)


@compiled
def end_work(state: Merging, number: int, time: float) -> None:
    """A reader has computed, and reads on, or ends; a block ends with its last reader."""
    sm = state.multiprocessors[number]
    compute(state, sm, time)
    first = first_to_end(state, sm)
    reader = sm.computing[first]
    sm.count -= 1
    for place in range(first, sm.count):
        sm.computing[place] = sm.computing[place + 1]
    if state.readers[reader].next < state.readers[reader].end:
        read_round(state, reader, time)
    else:
        block = state.blocks[state.readers[reader].block]
        block.live -= 1
        if block.live == 0:
            longer = state.duration_deviation * normal(state)
            lasts = (time - block.begun) * later(longer, -longer)
            push(state, time + lasts, state.readers[reader].block, _HAS_ENDED)
    expect(state, number)


@compiled
def start(state: Merging, number: int, time: float) -> None:
    """Start the next block on an SM: blocks start one after the other."""
    block = state.blocks[state.started]
    state.started += 1
    block.multiprocessor = number
    block.begun = later(time, state.next_start)
    block.live = block.end - block.first
    state.next_start = block.begun + state.start_clocks
    for reader in range(block.first, block.end):
        if state.readers[reader].work > 0.0:
            push(state, block.begun, reader, 0)
        else:
            late = state.start_deviation * normal(state)
            push(state, block.begun + later(late, -late), reader, _ASKS)


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
        elif number >= 0 and version == _ASKS:
            read_round(state, number, time)
        elif number >= 0:
            begin_work(state, number, time)
        elif state.multiprocessors[-1 - number].version == version:
            end_work(state, -1 - number, time)
    return 0
