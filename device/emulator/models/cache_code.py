"""The caches as machine code, which keep the lines that were used last.

Every cache keeps whole lines and fills sectors. Its lines are a list from the one used last to the
one used least recently, and are found through a table of hashes; an L1 has sets (`l1_code`). Where
accesses have no order but that of windows of time (`find_misses`), it knows the window of each
line's last use.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from memlab.device.emulator.codegen.compiled import Compiled, compiled, set_bits
from memlab.device.emulator.codegen.lanes import count_bits
from memlab.device.emulator.codegen.llvm import library_of
from memlab.device.emulator.codegen.records import Byte, Int32, Pointer, Record
from memlab.device.emulator.models.cache_records import HASH, L1, NONE, Cache, Line
from memlab.device.emulator.models.l1_code import (
    find_l1_misses,
    find_sets,
    forget,
    found_in_l1,
    use_l1,
)

LOAD, LOAD_BYPASSING_L1, STORE, STORE_BYPASSING_L1, ATOMIC, COPY, MULTICAST = range(7)
LOAD_ONCE, STORE_ONCE = 7, 8
"""Kinds of instructions by their number in `Replay.kinds`. All stores reach the L2; those of
threads stay in the L1, too. Lines of accesses that say that there is no other one are the first
that the L1 replaces. The L2 executes atomics. Bulk copies pass the L1. Those to several
blocks are served one by one: the request coalescer, which sends them to their receivers, merges
none of them with others (its counters lrc__*_coalescing_achieved_type_programmatic,
tests/data/h100-hopper-counters.csv)."""

_SECTORS = 4  # of a line
_SECTOR_BITS = (1 << _SECTORS) - 1
_HOME_SHIFT, _HOME_BITS = 20, (1 << 16) - 1  # bits of a line's hash that choose its partition
_MULTIPROCESSORS = 1 << 20  # by which an instruction's number is multiplied in an asker's
_ALL = _MULTIPROCESSORS - 1  # the multiprocessor of an asker that stands for all
_READER_BITS = 16
_MOST_READERS = (1 << _READER_BITS) - 1
TURNS = 32
"""Parts of the time in which a block executes an instruction, of which misses are told apart."""


class Counts(Record):
    """What was counted of an instruction, in sectors but for `requests` and `fetches`."""

    requests: int  # accesses to lines
    accesses: int
    l1_hits: int
    lrc_reads: int  # sectors that loads read from the L2, before the coalescer
    l2_reads: float  # and behind it
    l2_misses: int  # sectors that loads read, and the reader's partition of the L2 did not hold
    memory_reads: int  # those among them that no partition held
    atomic_misses: int  # sectors of atomics that the L2 did not hold
    fetches: int  # accesses to memory
    first_reads: int  # among all reads of memory, sectors that no access named before
    joined: int  # among `l1_hits`, sectors that another read of the same time asked for
    joined_memory: int  # those of them that come from memory
    l2_joined_memory: int  # sectors that the L2 has asked memory for at the same time


class Replay(Record):
    """Accesses and caches."""

    places: Pointer[int]  # 16 times the line's number, with a bit per sector
    indices: Pointer[Int32]  # the instruction
    owners: Pointer[Int32]  # the multiprocessor
    order: Pointer[int]  # the accesses in the order of time
    moments: Pointer[int]  # the time of each access
    times: Pointer[int]  # the same, where reads of one time are merged
    read_by: Pointer[float]  # what the n-th read of a sector at one time adds to those of the L2
    most_readers: int  # the last n
    coalescers: Pointer[Cache]  # lines that copies of SMs that can be served at once have read
    meetings: Pointer[Int32]  # by access: the number of its coalescer
    most_copies: int  # reads of copies that one read of the L2 serves
    apart: Pointer[Byte]  # by access: whether its block is out of step with others
    alone: float  # the share of copies out of step that would be merged in step, and are not
    fresh: Pointer[Byte]  # by access: a bit per sector that none before it names; or null
    kinds: Pointer[Int32]  # by instruction
    since_start: Pointer[int]  # by access: its time since its block began
    first_times: Pointer[int]  # by instruction: the least of these
    durations: Pointer[int]  # by instruction: from that on, until all are past
    counts: Pointer[Counts]  # by instruction and turn
    l1: Pointer[L1]  # by multiprocessor
    l2: Pointer[Cache]  # its partitions
    partitions: int
    in_step: int  # whether the blocks of the first wave read at one pace
    fetched_sectors: int  # by one access to memory, aligned: 1, 2 or 4


class LineUse(Record):
    """A line that accesses in windows use; windows are counted from 1."""

    last: Int32  # the window of the last access; 0 for none
    filled: Int32  # that in which the cache was last without the line
    units: Annotated[Pointer[Int32], _SECTORS]  # of the last access to each of its units


@cache
def function(name: str, arguments: int) -> Any:
    """An exported function as a Python callable of so many addresses and numbers."""
    functions: dict[str, Compiled[Any]] = {each.name: each for each in _EXPORTED}
    library = library_of("caches", Path(__file__).parent, *functions.values())
    return library.function(name, ctypes.c_int64, *arguments * [ctypes.c_int64])


@compiled(exported=True)
def find_misses(
    windows: Pointer[int],
    units: Pointer[int],
    count: int,
    units_per_line: int,
    uses: Pointer[LineUse],
    touched: Pointer[int],
    capacity: int,
    missed: Pointer[Byte],
) -> int:
    """Mark the accesses that miss a cache of so many lines: see `caches.misses`.

    `touched` has room for the number of lines by the window of their last access.
    """
    now, oldest, resident = 0, 1, 0
    for number in range(count):
        window = windows[number] + 1
        if window != now:
            now = window
            while resident > capacity:
                resident -= touched[oldest]
                oldest += 1
        unit = units[number]
        use, place = uses[unit // units_per_line], unit % units_per_line
        last = use.last
        if last != now:
            if last >= oldest:
                touched[last] -= 1
            else:
                use.filled = now
                resident += 1
            touched[now] += 1
            use.last = now
        if use.units[place] < use.filled:
            missed[number] = 1
        use.units[place] = now
    return 0


@compiled(exported=True)
def replay(state: Replay, start: int, stop: int) -> int:
    """Make the accesses from `start` up to, not including, `stop`."""
    for number in range(start, stop):
        access = state.order[number]
        place, index = state.places[access], state.indices[access]
        line, sectors = place >> _SECTORS, place & _SECTOR_BITS
        counts, kind = count_access(state, index, access), state.kinds[index]
        owner, moment, once = state.owners[access], state.moments[access], is_used_once(kind)
        asker, together = owner + index * _MULTIPROCESSORS, asker_of_l2(state, access)
        if kind in (LOAD_BYPASSING_L1, ATOMIC):
            forget(state.l1[owner], line)
        if kind in (STORE, STORE_ONCE, STORE_BYPASSING_L1):
            if kind != STORE_BYPASSING_L1:
                use_l1(state.l1[owner], line, once).valid |= sectors
            write(state, owner % state.partitions, line, sectors)
            continue
        if kind in (LOAD, LOAD_ONCE):
            held = use_l1(state.l1[owner], line, once)
            count_hits(counts, held, sectors & held.valid, asker, moment)
            sectors &= ~held.valid
            held.valid |= sectors
            if sectors == 0:
                continue
        if kind == ATOMIC:
            home = home_of(state, line)
            missing = fetch(state, counts, home, line, sectors, together, moment)
            counts.atomic_misses += count_bits(missing)
            count_first_reads(state, counts, missing, access)
            home.lines[home.latest].dirty |= sectors
            drop_copies(state, line, home_number(state, line))
            continue
        near = state.l2[owner % state.partitions]
        count_reads(state, counts, use(near, line), sectors, access)
        absent = sectors & ~use(near, line).valid
        counts.l2_misses += count_bits(absent)
        waiting = sectors & ~absent & coming_at(use(near, line), together, moment)
        read_now = 0
        if absent:
            home = home_of(state, line)
            waiting |= absent & coming_at(use(home, line), together, moment)
            read_now = fetch(state, counts, home, line, absent, together, moment)
            waiting &= ~read_now
            counts.memory_reads += count_bits(read_now)
            count_first_reads(state, counts, read_now, access)
            read(near, line, sectors)
            ask(use(near, line), read_now | waiting, read_now | waiting, together, moment)
        counts.l2_joined_memory += count_bits(waiting)
        if kind in (LOAD, LOAD_ONCE):
            held = state.l1[owner].lines[found_in_l1(state.l1[owner], line)]
            ask(held, sectors, read_now | waiting, asker, moment)
    return 0


@compiled
def count_hits(counts: Counts, held: Line, sectors: int, asker: int, moment: int) -> None:
    """Count sectors of a line that an L1 holds, or has asked for."""
    coming = sectors & coming_at(held, asker, moment)
    counts.l1_hits += count_bits(sectors)
    counts.joined += count_bits(coming)
    counts.joined_memory += count_bits(coming & held.remote)


@compiled
def count_access(state: Replay, index: int, access: int) -> Counts:
    """Count an access to a line, and return the counts of its instruction and turn.

    A turn is a part of the time in which a block executes the instruction.
    """
    since = state.since_start[access] - state.first_times[index]
    turn = min((since * TURNS) // state.durations[index], TURNS - 1)
    counts = state.counts[index * TURNS + turn]
    counts.requests += 1
    counts.accesses += count_bits(state.places[access] & _SECTOR_BITS)
    return counts


@compiled(exported=True)
def find_durations(
    indices: Pointer[Int32],
    since_start: Pointer[int],
    count: int,
    first_times: Pointer[int],
    durations: Pointer[int],
) -> int:
    """Find when the first and the last access of each instruction are in their blocks.

    Both are 0 before, and the latter is behind the last one then.
    """
    for access in range(count):
        index, time = indices[access], since_start[access]
        if durations[index] == 0 or time < first_times[index]:
            first_times[index] = time
        durations[index] = max(durations[index], time + 1)
    return 0


@compiled
def is_used_once(kind: int) -> int:
    """1 for instructions whose lines an L1 replaces first, else 0."""
    once = 0
    if kind in (LOAD_ONCE, STORE_ONCE):
        once = 1
    return once


@compiled
def count_first_reads(state: Replay, counts: Counts, missing: int, access: int) -> None:
    """Count sectors read from memory that no access named before, if that is known."""
    if state.fresh:
        counts.first_reads += count_bits(missing & state.fresh[access])


@compiled(exported=True)
def find_fresh(
    places: Pointer[int],
    order: Pointer[int],
    count: int,
    table: Pointer[int],
    hash_shift: int,
    fresh: Pointer[Byte],
) -> int:
    """Mark the sectors of each access that no access before it names.

    `table` holds -1 at 2^(64 - hash_shift) entries, more than there are lines.
    """
    last = (1 << 64 - hash_shift) - 1
    for number in range(count):
        access = order[number]
        place = places[access]
        line, sectors = place >> _SECTORS, place & _SECTOR_BITS
        entry = line * HASH >> hash_shift & last
        while table[entry] != NONE and table[entry] >> _SECTORS != line:
            entry = entry + 1 & last
        known = 0
        if table[entry] != NONE:
            known = table[entry] & _SECTOR_BITS
        fresh[access] = sectors & ~known
        table[entry] = line << _SECTORS | known | sectors
    return 0


@compiled
def asker_of_l2(state: Replay, access: int) -> int:
    """Who asks the L2 in an access: all multiprocessors together, where they read in step."""
    owner, index = state.owners[access], state.indices[access]
    if state.in_step and state.times[access] >= 0:
        owner = _ALL
    return owner + index * _MULTIPROCESSORS


@compiled
def coming_at(place: Line, asker: int, moment: int) -> int:
    """The sectors of a line that warps have asked for by the same instruction at this time."""
    coming = 0
    if place.asked == moment and place.asker == asker:
        coming = place.coming
    return coming


@compiled
def ask(place: Line, sectors: int, remote: int, asker: int, moment: int) -> None:
    """Note that a warp asks for sectors of a line, some of which come from memory."""
    if place.asked != moment or place.asker != asker:
        place.asked, place.asker, place.coming, place.remote = moment, asker, 0, 0
    place.coming |= sectors
    place.remote |= remote


@compiled
def count_reads(state: Replay, counts: Counts, place: Line, sectors: int, access: int) -> None:
    """Count reads of sectors of a line of the near partition, by the kind of the instruction."""
    kind = state.kinds[state.indices[access]]
    if kind == MULTICAST:
        counts.lrc_reads += count_bits(sectors)
        counts.l2_reads += float(count_bits(sectors))
    elif kind == COPY:
        asked = use(state.coalescers[state.meetings[access]], place.number)
        count_copies(state, counts, asked, sectors, access)
    else:
        count_readers(state, counts, place, sectors, state.times[access])


@compiled
def count_readers(state: Replay, counts: Counts, place: Line, sectors: int, time: int) -> None:
    """Count reads of sectors of a line, and what the coalescer leaves of them."""
    counts.lrc_reads += count_bits(sectors)
    if place.time != time:
        place.time, place.readers = time, 0
    for sector in set_bits(sectors):
        shift = _READER_BITS * sector
        readers = place.readers >> shift & _MOST_READERS
        counts.l2_reads += state.read_by[readers]
        if readers < state.most_readers:
            place.readers += 1 << shift


@compiled
def count_copies(state: Replay, counts: Counts, place: Line, sectors: int, access: int) -> None:
    """Count reads of copies, of which one reads the L2 for so many of the same time."""
    counts.lrc_reads += count_bits(sectors)
    time = state.times[access]
    if place.time != time:
        place.time, place.readers = time, 0
    for sector in set_bits(sectors):
        shift = _READER_BITS * sector
        readers = place.readers >> shift & _MOST_READERS
        if readers % state.most_copies == 0:
            counts.l2_reads += 1.0
        elif state.apart[access] != 0:
            counts.l2_reads += state.alone
        if readers < _MOST_READERS:
            place.readers += 1 << shift


@compiled
def home_of(state: Replay, line: int) -> Cache:
    """The partition of the L2 in front of the memory that a line lies in."""
    return state.l2[home_number(state, line)]


@compiled
def home_number(state: Replay, line: int) -> int:
    """The number of that partition."""
    return (line * HASH >> _HOME_SHIFT & _HOME_BITS) % state.partitions


@compiled
def fetch(
    state: Replay, counts: Counts, home: Cache, line: int, sectors: int, asker: int, moment: int
) -> int:
    """Read sectors from the partition in front of their memory: those that it did not hold."""
    missing = read(home, line, sectors)
    place = home.lines[home.latest]
    unit, bits = 0, (1 << state.fetched_sectors) - 1
    while unit < _SECTORS:
        if missing & bits << unit:
            counts.fetches += 1
            place.valid |= bits << unit
            ask(place, bits << unit, bits << unit, asker, moment)
        unit += state.fetched_sectors
    return missing


@compiled
def read(cache: Cache, line: int, sectors: int) -> int:
    """Read sectors of a line, which is then the newest: the sectors that the cache did not hold."""
    place = use(cache, line)
    missing = sectors & ~place.valid
    place.valid |= sectors
    return missing


@compiled
def write(state: Replay, writer: int, line: int, sectors: int) -> None:
    """Write sectors of a line, of which the writer's partition keeps a copy, too."""
    read(state.l2[writer], line, sectors)
    drop_copies(state, line, writer)
    home = home_of(state, line)
    read(home, line, sectors)
    home.lines[home.latest].dirty |= sectors


@compiled
def drop_copies(state: Replay, line: int, writer: int) -> None:
    """Take a line that is written out of the partitions that are not its home or the writer's."""
    home = home_number(state, line)
    for place in range(state.partitions):
        if place in (home, writer):
            continue
        number = found(state.l2[place], line)
        if number != NONE:
            state.l2[place].lines[number].valid = 0


@compiled
def found(cache: Cache, line: int) -> int:
    """The number of a line that a cache has; -1 if it has not."""
    number = cache.heads[line * HASH >> cache.hash_shift & (1 << 64 - cache.hash_shift) - 1]
    while number != NONE and cache.lines[number].number != line:
        number = cache.lines[number].chained
    return number


@compiled
def use(cache: Cache, line: int) -> Line:
    """Make a line the newest; it is without sectors if the cache did not have it."""
    head = line * HASH >> cache.hash_shift & (1 << 64 - cache.hash_shift) - 1
    number = found(cache, line)
    if number != NONE:
        cache.latest = number
        if number != cache.newest:
            unlink(cache, number)
            link(cache, number)
        return cache.lines[number]
    if cache.count < cache.capacity:
        number = cache.count
        cache.count += 1
    else:
        number = cache.oldest
        unlink(cache, number)
        drop(cache, number)
    place = cache.lines[number]
    place.number, place.valid, place.dirty, place.time, place.readers = line, 0, 0, -1, 0
    place.asked, place.coming = -1, 0
    place.chained = cache.heads[head]
    cache.heads[head] = number
    link(cache, number)
    cache.latest = number
    return place


@compiled
def link(cache: Cache, number: int) -> None:
    """Make a line that is not in the list the newest."""
    newest = cache.newest
    cache.lines[number].older, cache.lines[number].newer = newest, NONE
    if newest != NONE:
        cache.lines[newest].newer = number
    else:
        cache.oldest = number
    cache.newest = number


@compiled
def unlink(cache: Cache, number: int) -> None:
    """Take a line out of the list."""
    place = cache.lines[number]
    if place.newer != NONE:
        cache.lines[place.newer].older = place.older
    else:
        cache.newest = place.older
    if place.older != NONE:
        cache.lines[place.older].newer = place.newer
    else:
        cache.oldest = place.newer


@compiled
def drop(cache: Cache, number: int) -> None:
    """Remove a line from its chain, and write back what memory must get."""
    place = cache.lines[number]
    cache.written_back += count_bits(place.dirty)
    head = place.number * HASH >> cache.hash_shift & (1 << 64 - cache.hash_shift) - 1
    if cache.heads[head] == number:
        cache.heads[head] = place.chained
        return
    before = cache.heads[head]
    while cache.lines[before].chained != number:
        before = cache.lines[before].chained
    cache.lines[before].chained = place.chained


_EXPORTED: tuple[Any, ...] = (
    find_misses,
    find_sets,
    find_l1_misses,
    find_fresh,
    find_durations,
    replay,
)
