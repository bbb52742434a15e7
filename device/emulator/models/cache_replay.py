"""The caches fed with executed accesses: the blocks on their multiprocessors, in time order.

Blocks start in launch order, each on the multiprocessor that has room first, and all that are
resident run at the same pace. Each multiprocessor has an L1: loads fill it, and so do stores, which
go through it: rows that are read again beside stores hit less (docs/results/h200-kept-lines.csv,
`rows_twice`). All share an L2, which keeps what is written until its line is replaced. Reads of one
sector at the same time by blocks that start at once are merged before the L2
(`CacheGeometry.coalesced_reads`), or as a simulation of their paces finds (`read_merging`).

An L2 of two partitions keeps a line in that in front of the line's memory, and in the other one a
copy for the multiprocessors that are connected to it (NVIDIA A100 Tensor Core GPU Architecture,
2020: "Each L2 partition caches data for memory accesses from SMs in the GPCs directly connected to
the partition"). So it holds half of what its size says where all read the same. What is written is
kept in both, too: where an H200 writes as much as it reads, both take the room of three halves
(docs/results/h200-capacity.csv, `L2 with writes`).

Where the accesses are a sample, by lines, the caches are smaller in proportion (SHARDS:
Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015). A sample has all lines of
some sets of the L1s.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import LOCAL_LINES
from memlab.device.emulator.codegen.records import dtype_of
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access, is_multicast
from memlab.device.emulator.models import cache_code
from memlab.device.emulator.models.address_streams import SECTORS_PER_LINE, IntArray, hash_lines
from memlab.device.emulator.models.cache_records import HASH_BITS
from memlab.device.emulator.models.caches import MERGED_WAVES, CacheGeometry
from memlab.device.emulator.models.empty_caches import EmptyCaches
from memlab.device.emulator.models.read_merging import (
    DURATION_DEVIATION,
    MergedReads,
    ReadRounds,
    merge_reads,
)
from memlab.device.emulator.models.read_rounds import number_rounds
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES

_COUNTS, _REPLAY = map(dtype_of, (cache_code.Counts, cache_code.Replay))
_PLACES = 1 << SECTORS_PER_LINE  # by which a line's number is multiplied in a place
_COALESCED_LINES = 1 << 13
"""Lines that the SMs of a group can ask for at one time: a box has 256 rows at most."""
_GROUPS = 3  # of blocks: see `ReplayedTraffic`
SECTOR_COUNTS = np.array([number.bit_count() for number in range(_PLACES)])
"""How many sectors of a line the low bits of a place name."""
_MERGED_LINES = 400_000
"""Accesses to lines of which merged reads are simulated, about: of more, the lines are sampled."""
_SERVED = ("requests", "accesses", "l1_hits", "memory_reads", "l2_misses")
"""`Counts` that are told apart by parts of the time."""
PARTS = cache_code.TURNS
"""Parts of a launch, by its accesses in the order of time, of which the misses are told apart."""


@dataclass(frozen=True)
class LineAccesses:
    """The accesses of some blocks to a sample of the lines.

    Attributes:
        block: The position of each access's block in launch order, ascending; shape (accesses,).
        time: When it happens, in steps since its block began; ascending in each block.
        index: The instruction.
        place: 16 times the line's number, with a bit per sector.
        ends: When each block ends, in steps since it began; shape (blocks,).
        factor: One line in so many is in the sample.
        warp: Each access's warp in its block, shape (accesses,); of blocks of one warp none.
    """

    block: IntArray
    time: IntArray
    index: NDArray[np.int32]
    place: IntArray
    ends: IntArray
    factor: int
    warp: IntArray | None = None


@dataclass(frozen=True)
class InstructionTraffic:
    """The traffic of instructions, by their positions in the program: sectors of the sample.

    Attributes:
        accesses: Sectors that they accessed.
        l1_hits: Those of loads that the L1 held.
        lrc_reads: Those that loads read from the L2, before its request coalescer.
        l2_reads: Those that are read behind it.
        l2_misses: Those that the reader's partition of the L2 did not hold.
        memory_reads: Those among them that no partition held.
        atomic_misses: Those of atomics that the L2 did not hold.
        fetches: Accesses to DRAM, each of `CacheGeometry.dram_access_bytes`.
        first_reads: Those among `memory_reads` and `atomic_misses` that no access named before; not
            counted where the whole grid was executed.
        joined: Those among `l1_hits` that come only now: the same instruction of another warp of
            the multiprocessor has asked for them at the same time.
        joined_memory: Those among them that come from DRAM.
        l2_joined_memory: Those that the L2 has asked DRAM for at the same time, by the same
            instruction: of any multiprocessor in the first wave of blocks in step, else of the
            same one.
    """

    accesses: IntArray
    l1_hits: IntArray
    lrc_reads: IntArray
    l2_reads: NDArray[np.float64]
    l2_misses: IntArray
    memory_reads: IntArray
    atomic_misses: IntArray
    fetches: IntArray
    first_reads: IntArray
    joined: IntArray
    joined_memory: IntArray
    l2_joined_memory: IntArray


@dataclass(frozen=True)
class ReplayedTraffic:
    """What a replay counted.

    Attributes:
        first_wave: The traffic of the blocks that start at once.
        settling: That of the first half of the others, in launch order.
        later: That of the second half.
        written_back: Sectors that the L2 wrote to DRAM.
        loads: The positions of the loads in the program.
        by_part: Of each part of the accesses, in the order of time, and each of these loads:
            accesses to lines, sectors that these accessed, those that the L1 held, those that came
            from DRAM, and those that the reader's partition of the L2 did not hold; shape (parts,
            5, loads).
        by_turn: The same of each part of the time in which a block executes the load.
    """

    first_wave: InstructionTraffic
    settling: InstructionTraffic
    later: InstructionTraffic
    written_back: int
    loads: IntArray
    by_part: IntArray
    by_turn: IntArray


@dataclass(frozen=True)
class Schedule:
    """Where and when blocks run.

    Attributes:
        multiprocessor: Of each block in launch order; shape (blocks,).
        slot: Its place among the blocks that are resident on one multiprocessor.
        start: When it starts, in steps.
    """

    multiprocessor: IntArray
    slot: IntArray
    start: IntArray


def schedule_blocks(ends: IntArray, geometry: CacheGeometry) -> Schedule:
    """Start blocks in launch order, each where a resident block has ended first.

    The first blocks are distributed one to each multiprocessor in turn. They do not end in that
    order, so which of the later ones come to a multiprocessor is left to chance.

    Args:
        ends: When each block ends, in steps since it began.
        geometry: The multiprocessors, and how many blocks each can hold.
    """
    count, wave = len(ends), geometry.wave
    place, start = np.arange(count), np.zeros(count, np.int64)
    if count > wave:
        deviation = 0.0 if geometry.in_order else DURATION_DEVIATION
        paces = 1 + deviation * np.random.default_rng(0).standard_normal(count)
        lasts = ends * np.maximum(paces, 0.0)
        running = [(end, number) for number, end in enumerate(lasts[:wave].tolist())]
        heapq.heapify(running)
        for block, end in enumerate(lasts[wave:].tolist(), wave):
            now, number = running[0]
            place[block], start[block] = number, round(now)
            heapq.heapreplace(running, (now + end, number))
    slot, multiprocessor = np.divmod(place, geometry.multiprocessors)
    return Schedule(multiprocessor, slot, start)


def replay_accesses(
    accesses: LineAccesses,
    schedule: Schedule,
    steps: Sequence[DecodedInstruction],
    geometry: CacheGeometry,
    blocks: int | None = None,
) -> ReplayedTraffic:
    """Let the caches serve accesses in the order of time.

    Args:
        accesses: The accesses.
        schedule: Where and when their blocks run.
        steps: The program's instructions.
        geometry: The caches.
        blocks: The blocks of the grid, which may be more than those of the accesses; as many if not
            given.
    """
    start, owner = schedule.start[accesses.block], schedule.multiprocessor[accesses.block]
    times = start + accesses.time
    order = np.argsort(times, kind="stable")
    read_by = np.ones(geometry.multiprocessors)
    if geometry.merged_by_readers and geometry.reads is None:
        read_by = np.diff(geometry.coalesced_reads(np.arange(geometry.multiprocessors + 1)))
    count = len(steps)
    is_later = accesses.block >= geometry.wave
    group = _groups(len(accesses.ends), geometry.wave)[accesses.block]
    index = accesses.index + group * count  # counted by themselves
    never = -2 - np.arange(len(times))  # times at which no other access is made: nothing is merged
    counts = np.zeros((_GROUPS, count, cache_code.TURNS), _COUNTS)
    caches, state = EmptyCaches(), np.zeros((), _REPLAY)
    l2_lines = round(geometry.l2_bytes / LINE_BYTES / accesses.factor / geometry.l2_partitions)
    l2 = caches.add(geometry.l2_partitions, l2_lines)
    meetings, coalescers = _meetings(accesses, schedule, owner, geometry)
    arrays: dict[str, NDArray[Any]] = {
        "places": _placed(accesses, schedule, owner, geometry),
        "indices": index.astype(np.int32),
        "owners": owner.astype(np.int32),
        "order": order,
        "moments": times,
        "times": np.where(is_later, never, times),
        "read_by": read_by,
        "coalescers": caches.add(coalescers, _COALESCED_LINES),
        "meetings": meetings,
        "apart": _apart(accesses, steps),
        "kinds": np.array(_GROUPS * _kinds(steps, bool(geometry.l1_bytes)), np.int32),
        "since_start": np.ascontiguousarray(accesses.time),
        "first_times": np.zeros(_GROUPS * count, np.int64),
        "durations": np.zeros(_GROUPS * count, np.int64),
        "counts": counts,
        "l1": caches.add_l1s(geometry.multiprocessors, geometry.l1_bytes, accesses.factor),
        "l2": l2,
    }
    if blocks is not None and blocks > len(accesses.ends):
        arrays["fresh"] = fresh_sectors(arrays["places"], order)
    for name, array in arrays.items():
        state[name] = array.ctypes.data
    state["partitions"] = geometry.l2_partitions
    state["in_step"] = geometry.in_step
    state["most_readers"] = len(read_by) - 1
    state["most_copies"] = geometry.copies.most if geometry.copies else 1
    state["alone"] = 1 - geometry.copies.merged_apart if geometry.copies else 0.0
    state["fetched_sectors"] = geometry.dram_access_bytes // SECTOR_BYTES
    used = [arrays[name].ctypes.data for name in ("indices", "since_start")]
    found = [arrays[name].ctypes.data for name in ("first_times", "durations")]
    cache_code.function("find_durations", 5)(*used, len(order), *found)
    arrays["durations"] -= arrays["first_times"]
    replay = cache_code.function("replay", 3)
    loads = np.flatnonzero([step.row.kind == "load" for step in steps])
    done = np.zeros((PARTS + 1, len(_SERVED), len(loads)), np.int64)
    bounds = np.linspace(0, len(order), PARTS + 1).astype(int).tolist()
    for part, (begin, end) in enumerate(itertools.pairwise(bounds), 1):
        replay(state.ctypes.data, begin, end)
        for place, name in enumerate(_SERVED):
            done[part, place] = counts[name][:, loads].sum(axis=(0, 2))
    by_turn = np.array([counts[name][:, loads].sum(axis=0).T for name in _SERVED])
    kinds = arrays["kinds"][:count]
    is_merged = _reads_of_arrays(steps, kinds)
    merged = _merged(accesses, schedule, steps, kinds, is_merged, geometry)
    counts["l2_reads"][0, is_merged] *= merged.first_wave
    counts["l2_reads"][1:, is_merged] *= merged.later
    first, settling, later = map(_traffic, counts)
    return ReplayedTraffic(
        first,
        settling,
        later,
        int(l2["written_back"].sum()),
        loads,
        np.diff(done, axis=0),
        by_turn.swapaxes(0, 1),
    )


def _groups(blocks: int, wave: int) -> IntArray:
    """The group of each block in launch order: of the first wave, settling, or later."""
    number, others = np.arange(blocks), max(blocks - wave, 0)
    return (number >= wave).astype(np.int64) + (number >= wave + others // 2)


def fresh_sectors(places: IntArray, order: IntArray) -> NDArray[np.uint8]:
    """The sectors of each access that none before it names, a bit for each."""
    bits = max((2 * len(places) - 1).bit_length(), 1)
    table, fresh = np.full(1 << bits, -1), np.zeros(len(places), np.uint8)
    cache_code.function("find_fresh", 6)(
        places.ctypes.data,
        order.ctypes.data,
        len(places),
        table.ctypes.data,
        HASH_BITS - bits,
        fresh.ctypes.data,
    )
    return fresh


def _merged(
    accesses: LineAccesses,
    schedule: Schedule,
    steps: Sequence[DecodedInstruction],
    kinds: NDArray[np.int32],
    is_read: NDArray[np.bool_],
    geometry: CacheGeometry,
) -> MergedReads:
    """How the reads of blocks are merged, where that is simulated.

    One line stands for all that an instruction reads at one time. What a multiprocessor has read
    before hits its L1.
    """
    if geometry.reads is None:
        return MergedReads(1.0, 1.0)
    one_wave = len(accesses.ends) <= geometry.wave  # as they were measured
    if one_wave and not geometry.reads.between_barriers:
        rounds = _rounds_of_warps(accesses, kinds, is_read, geometry)
    else:
        rounds = _rounds_of_blocks(accesses, schedule, steps, kinds, is_read, geometry)
    return merge_reads(rounds, geometry.reads, geometry.multiprocessors, geometry.resident_blocks)


def _sampled(kept: IntArray, accesses: LineAccesses) -> tuple[IntArray, int]:
    """Of many accesses, by their positions, those to one line in so many, and that number."""
    every = max(-(-len(kept) // _MERGED_LINES), 1)
    if every > 1:
        kept = kept[hash_lines(accesses.place[kept] >> SECTORS_PER_LINE) % every == 0]
    return kept, every


def _rounds_of_blocks(
    accesses: LineAccesses,
    schedule: Schedule,
    steps: Sequence[DecodedInstruction],
    kinds: NDArray[np.int32],
    is_read: NDArray[np.bool_],
    geometry: CacheGeometry,
) -> ReadRounds:
    """What the first blocks read, and their multiprocessor has not read before."""
    assert geometry.reads is not None
    blocks = min(len(accesses.ends), MERGED_WAVES * geometry.wave)
    reads = np.flatnonzero(is_read[accesses.index] & (accesses.block < blocks))
    kept, every = _sampled(reads, accesses)
    times = schedule.start[accesses.block[kept]] + accesses.time[kept]
    kept = kept[np.argsort(times, kind="stable")]
    owner = schedule.multiprocessor[accesses.block[kept]]
    _, number = np.unique(accesses.place[kept], return_inverse=True)
    _, first = np.unique(owner * (number.max(initial=0) + 1) + number, return_index=True)
    missed = kinds[accesses.index[kept]] == cache_code.LOAD_BYPASSING_L1
    missed[first] = True
    kept = np.sort(kept[missed])
    order = (accesses.place, accesses.index, accesses.time, accesses.block)
    kept = kept[np.lexsort(tuple(of[kept] for of in order))]
    block, time, index = accesses.block[kept], accesses.time[kept], accesses.index[kept]
    begins = np.ones(len(kept), np.bool_)
    begins[1:] = (np.diff(block) != 0) | (np.diff(time) != 0) | (np.diff(index) != 0)
    read = np.flatnonzero(begins)
    block, time, place = block[read], time[read], accesses.place[kept[read]]
    starts = np.ones(len(read), np.bool_)
    starts[1:] = np.diff(block) != 0
    if geometry.reads.between_barriers:
        number = number_rounds(steps, index[read].astype(np.int64), time, starts)
    else:
        number = np.cumsum(starts | (np.diff(time, prepend=-1) != 0)) - 1
    sectors = SECTOR_COUNTS[accesses.place[kept] & _PLACES - 1]
    first_reads = np.searchsorted(block, np.arange(blocks + 1))
    return ReadRounds(
        starts=first_reads,
        round=number,
        place=place,
        line=place >> SECTORS_PER_LINE,
        unit=_units(place, geometry),
        sectors=np.add.reduceat(sectors, read) if len(read) else np.zeros(0),
        lines=np.diff(np.append(read, len(kept))) * float(accesses.factor * every),
        work=_work(block, time, number, accesses.ends),
        work_before=(np.diff(first_reads) == 0).astype(np.float64),  # all of those whose reads hit
    )


def _rounds_of_warps(
    accesses: LineAccesses,
    kinds: NDArray[np.int32],
    is_read: NDArray[np.bool_],
    geometry: CacheGeometry,
) -> ReadRounds:
    """What the warps of the first blocks read, and have not read before.

    A line that another warp of the multiprocessor has asked for hits the L1.
    """
    blocks = min(len(accesses.ends), MERGED_WAVES * geometry.wave)
    reads = np.flatnonzero(is_read[accesses.index] & (accesses.block < blocks))
    opens = accesses.ends[:blocks].copy()  # when a block first reads
    readers, first = np.unique(accesses.block[reads], return_index=True)
    opens[readers] = accesses.time[reads[first]]
    warp = np.zeros(1, np.int64) if accesses.warp is None else accesses.warp
    warps = int(warp.max(initial=0)) + 1
    reader = accesses.block * warps + warp
    line, sectors = accesses.place >> SECTORS_PER_LINE, accesses.place & _PLACES - 1
    own = line[reads]
    own = own + reader[reads] * (int(own.max(initial=0)) + 1)
    is_cached = kinds[accesses.index] != cache_code.LOAD_BYPASSING_L1
    fresh = fresh_sectors(own * _PLACES + sectors[reads], np.arange(len(reads)))
    sectors[reads] = np.where(is_cached[reads], fresh, sectors[reads])  # the others hit the L1
    kept, every = _sampled(reads[sectors[reads] > 0], accesses)
    kept = kept[np.argsort(reader[kept], kind="stable")]
    starts = np.searchsorted(reader[kept], np.arange(blocks * warps + 1))
    begins = np.ones(len(kept), np.bool_)
    begins[1:] = (np.diff(reader[kept]) != 0) | (np.diff(accesses.time[kept]) != 0)
    number = np.cumsum(begins) - 1
    begin = np.flatnonzero(begins)
    lines = np.arange(len(kept)) - begin[number]

    ends, opens = np.repeat(accesses.ends[:blocks], warps), np.repeat(opens, warps)
    mean = max(float((ends - opens).mean()), 1.0) if blocks else 1.0
    time, of = accesses.time[kept[begin]], reader[kept[begin]]
    place = line[kept] * _PLACES + sectors[kept]
    until = np.append(time[1:], 0)
    is_last = np.diff(of, append=-1) != 0
    until[is_last] = ends[of[is_last]]
    before = (ends - opens).astype(np.float64)
    reading = starts[1:] > starts[:-1]
    before[reading] = accesses.time[kept[starts[:-1][reading]]] - opens[reading]
    return ReadRounds(
        starts=starts,
        round=number,
        place=place,
        line=place >> SECTORS_PER_LINE,
        unit=_units(place, geometry),
        sectors=SECTOR_COUNTS[sectors[kept]].astype(np.float64),
        lines=1.0 + lines * accesses.factor * every,
        work=((until - time) / mean)[number],
        warps=warps,
        work_before=before / mean,
        cached=is_cached[kept],
    )


def _reads_of_arrays(
    steps: Sequence[DecodedInstruction], kinds: NDArray[np.integer]
) -> NDArray[np.bool_]:
    """Whether each instruction is a load of global memory that threads execute."""
    is_local = np.array([step.row.space == "local" for step in steps])
    is_load = np.isin(kinds, (cache_code.LOAD, cache_code.LOAD_ONCE, cache_code.LOAD_BYPASSING_L1))
    chosen: NDArray[np.bool_] = is_load & ~is_local
    return chosen


def _units(place: IntArray, geometry: CacheGeometry) -> IntArray:
    """What an access to DRAM for the first sector of each place brings, by a number."""
    lowest = np.array([(mask & -mask).bit_length() - 1 for mask in range(_PLACES)])
    sector = (place >> SECTORS_PER_LINE) * SECTORS_PER_LINE + lowest[place & _PLACES - 1]
    units: IntArray = sector * SECTOR_BYTES // geometry.dram_access_bytes
    return units


def _work(block: IntArray, time: IntArray, number: IntArray, ends: IntArray) -> NDArray[np.float64]:
    """The share of its block's time that lies between a read's round and the next one."""
    if not len(block):
        return np.zeros(0)
    begins = np.diff(number, prepend=-1) != 0
    first = np.flatnonzero(begins)
    owner, begin = block[first], time[first]
    until = np.append(begin[1:], 0)
    is_last = np.diff(owner, append=-1) != 0
    until[is_last] = ends[owner[is_last]]
    lasts = ends[owner] - time[np.searchsorted(block, owner)]
    work: NDArray[np.float64] = ((until - begin) / np.maximum(lasts, 1))[np.cumsum(begins) - 1]
    return work


def _meetings(
    accesses: LineAccesses, schedule: Schedule, owner: IntArray, geometry: CacheGeometry
) -> tuple[NDArray[np.int32], int]:
    """Where copies can meet, of each access, and how many such places there are.

    The blocks of a group of multiprocessors meet, one of each: those that share a multiprocessor
    delay each other, so they go their own ways.
    """
    if geometry.copies is None:
        return np.zeros(len(owner), np.int32), 1
    slots = geometry.resident_blocks
    group = np.resize(geometry.copies.group, geometry.multiprocessors)
    meetings = group[owner] * slots
    meetings += schedule.slot[accesses.block]
    return meetings.astype(np.int32), int(group.max() + 1) * slots


def _apart(accesses: LineAccesses, steps: Sequence[DecodedInstruction]) -> NDArray[np.uint8]:
    """Whether the block of each access has stored before: then it is out of step with others."""
    is_store = np.array([step.row.kind == "store" for step in steps])[accesses.index]
    first = np.full(len(accesses.ends), np.iinfo(np.int64).max)
    np.minimum.at(first, accesses.block[is_store], accesses.time[is_store])
    return (accesses.time > first[accesses.block]).astype(np.uint8)


def _placed(
    accesses: LineAccesses, schedule: Schedule, owner: IntArray, geometry: CacheGeometry
) -> IntArray:
    """The places, with those of local memory where the blocks' slots have theirs."""
    is_local = np.flatnonzero(accesses.place >= LOCAL_LINES * _PLACES)
    if not is_local.size:
        return np.ascontiguousarray(accesses.place)
    slot = owner * geometry.resident_blocks + schedule.slot[accesses.block]
    place = accesses.place.copy()
    lines, number = np.unique(place[is_local] // _PLACES, return_inverse=True)
    number += LOCAL_LINES + slot[is_local] * len(lines)
    place[is_local] = number * _PLACES + place[is_local] % _PLACES
    return place


def _traffic(counts: NDArray[np.void]) -> InstructionTraffic:
    """The traffic of instructions whose turns were counted; shape (instructions, turns)."""
    names = [each.name for each in fields(InstructionTraffic)]
    return InstructionTraffic(**{name: counts[name].sum(axis=-1) for name in names})


def _kinds(steps: Sequence[DecodedInstruction], has_l1: bool) -> list[int]:
    """The kinds of instructions for the caches: a copy writes what it has read one step before."""
    kinds = [_kind(step, has_l1) for step in steps]
    for number, step in enumerate(steps):
        if is_bulk_access(step.row) and step.row.kind == "load" and step.row.space == "global":
            kinds[number] = cache_code.COPY
    for number, step in enumerate(steps[1:]):
        if is_multicast(step.row) and steps[number].row.kind == "load":
            kinds[number] = cache_code.MULTICAST
    return kinds


def _kind(step: DecodedInstruction, has_l1: bool) -> int:
    """The kind of a memory instruction for the caches."""
    match step.row.kind:
        case "load":
            if not has_l1 or step.row.bypass_l1:
                return cache_code.LOAD_BYPASSING_L1
            return cache_code.LOAD_ONCE if step.row.evict_first else cache_code.LOAD
        case "store":
            if not has_l1 or step.row.bypass_l1 or is_bulk_access(step.row):
                return cache_code.STORE_BYPASSING_L1
            return cache_code.STORE_ONCE if step.row.evict_first else cache_code.STORE
    return cache_code.ATOMIC
