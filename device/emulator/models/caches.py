"""L1, L2 and DRAM traffic, modelled from the access stream of a representative block.

The streams of all blocks resident on an SM, or of a wave of blocks on the whole device, are derived
from that of one block (`address_streams`), interleaved, and run through the model of an L1
(`l1_code`), or of an LRU cache, the L2. There, time is divided into windows: the accesses within a
window are a set, without order, and between windows the least recently used lines are evicted.
Blocks that wait at barriers over and over spread in an L1 as an SM serves them, the oldest first
(`_paces`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memlab.device.emulator.codegen.records import dtype_of
from memlab.device.emulator.codegen.trace_code import L1_SETS
from memlab.device.emulator.models import cache_code
from memlab.device.emulator.models.address_streams import (
    SECTORS_PER_LINE,
    AccessStream,
    ActiveRegion,
    IntArray,
    distinct,
    distinct_rows,
    hash_lines,
    shift_by_data,
    shifts_of,
    translate_sectors,
    wrap_sectors,
)
from memlab.device.emulator.models.coalescing import CopyMerging
from memlab.device.emulator.models.empty_caches import EmptyCaches
from memlab.device.emulator.models.read_merging import (
    MergedReads,
    ReadMerging,
    ReadRounds,
    merge_reads,
    read_times,
)
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES

_LINE_USE = dtype_of(cache_code.LineUse)
_LARGEST_SIMULATION = 2_000_000
"""Accesses in a simulation of the L2. Of more accesses, a sample of the lines is simulated, in a
cache of accordingly smaller capacity."""
_LARGEST_L1_SIMULATION = 8_000_000
"""Accesses in a simulation of the L1 of one SM."""
_LARGEST_TURNS, _MOST_TURN_BLOCKS, _LEAST_TURNS = 300_000, 256, 4
"""Accesses and blocks up to which further turns of blocks are simulated: 0.05 s. Where they are too
few to draw from, one is: blocks of so many accesses leave little in an L1 for those behind them."""
_MOST_BLOCKS, _MOST_DISTINCT = 1_000_000, 20_000_000
"""Blocks, and their accesses, of which the distinct ones are counted: half a second."""
_LARGEST_BATCH = 250_000
"""Accesses that are sampled at once, which bounds the memory of temporary arrays."""
_TABLE_PER_ACCESS, _SMALL_TABLE = 2, 1_000_000
"""The largest tables of units: elements per access, and elements in any case. Of more, the lines
that are accessed are found by sorting."""
MERGED_WAVES, _FEW_WAVES = 4, 3
"""Waves of blocks whose merged reads are simulated. In more than a few, blocks at barriers merge in
later waves what they do in many: loads through the L1 of more than one sector of a line."""
_MOST_READS = 400_000
"""Reads of these blocks that are simulated: of more, those of the first rounds."""
_MOST_FREE_READS = 1_200_000
"""Reads of blocks without barriers that are simulated, 0.6 s: of more, none."""
_SAMPLING_FACTORS = (
    1,
    2,
    5,
    11,
    23,
    47,
    97,
    197,
    397,
    797,
    1597,
    3203,
    6421,
    12_853,
    25_717,
    51_437,
)
"""Sampling takes one line in so many. The factors are primes, because the strides of accesses are
often powers of two."""


@dataclass(frozen=True)
class CacheGeometry:
    """The caches, and the blocks that share them.

    Attributes:
        multiprocessors: Number of SMs, each with an L1 cache.
        resident_blocks: Blocks per SM that are resident at once.
        l1_bytes: Size of one L1 in bytes, without the shared memory carved out of it.
        l2_bytes: Size of the L2 in bytes.
        dram_access_bytes: Bytes that one L2 miss reads from memory.
        l2_partitions: Parts of the L2, each of which caches what its own SMs read.
        merged_by_readers: How many reads of the L1s the L2's request coalescer makes one, by how
            many multiprocessors read the same data at the same pace; ascending. Without any, reads
            are not merged. They were measured where all blocks start at once: so do those of the
            first wave. Later ones start one by one as others end, and read the same at other times.
        merged_later: The same of later waves, by how many neighbouring blocks read the same data:
            they start one soon after the other, and barriers keep them together. Without any, these
            reads are not merged.
        copies: How the coalescer merges reads of bulk copies; None if it does not.
        reads: How it merges those of threads, where that is simulated; None for others.
        paces: At which pace blocks go that wait at barriers over and over; None for others.
        in_step: Whether blocks that start at once read at one pace. Those whose addresses depend on
            data do not: one finds what it reads in the L2, the other one waits for DRAM.
        in_order: Whether later blocks are distributed in turn, too: a multiprocessor has ended its
            first ones before all have theirs.
    """

    multiprocessors: int
    resident_blocks: int
    l1_bytes: int
    l2_bytes: int
    dram_access_bytes: int
    l2_partitions: int = 1
    merged_by_readers: tuple[tuple[float, float], ...] = ()
    merged_later: tuple[tuple[float, float], ...] = ()
    copies: CopyMerging | None = None
    reads: ReadMerging | None = None
    paces: ReadMerging | None = None
    in_step: bool = True
    in_order: bool = False

    @property
    def wave(self) -> int:
        """How many blocks are resident at once."""
        return self.multiprocessors * self.resident_blocks

    def coalesced_reads(self, readers: ArrayLike) -> NDArray[np.float64]:
        """How often the L2 is read where so many multiprocessors read a sector at one pace."""
        counts = np.asarray(readers, np.float64)
        reads: NDArray[np.float64] = counts / _merged(self.merged_by_readers, counts)
        return reads


def _merged(
    measured: Sequence[tuple[float, float]], readers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How many reads become one, by those that were measured for some numbers of readers."""
    known, merged = zip((1.0, 1.0), *measured, strict=True)
    made: NDArray[np.float64] = np.interp(readers, known, merged)
    return made


def misses(
    window: IntArray, unit: IntArray, units_per_line: int, capacity_bytes: float
) -> NDArray[np.bool_]:
    """Find the accesses that miss an LRU cache.

    Args:
        window: Time window of each access, ascending; shape (accesses,).
        unit: Number of the sector, or of the larger unit in which the cache is filled, that each
            access needs; shape (accesses,).
        units_per_line: Units per cache line.
        capacity_bytes: Size of the cache in bytes.

    Returns:
        Whether each access misses, shape (accesses,). Of several accesses to one unit in the same
        window, only one can miss.
    """
    line, lines = _numbers_from_0(unit // units_per_line, units_per_line)
    number = line * units_per_line + unit % units_per_line
    windows, units = (np.ascontiguousarray(array, np.int64) for array in (window, number))
    uses, missed = np.zeros(lines, _LINE_USE), np.zeros(len(unit), np.bool_)
    touched = np.zeros(int(window[-1]) + 2 if len(window) else 0, np.int64)
    cache_code.function("find_misses", 8)(
        windows.ctypes.data,
        units.ctypes.data,
        len(units),
        units_per_line,
        uses.ctypes.data,
        touched.ctypes.data,
        int(capacity_bytes // LINE_BYTES),
        missed.ctypes.data,
    )
    return missed


def _numbers_from_0(values: IntArray, size: int = 1) -> tuple[IntArray, int]:
    """Number values from 0, equal values alike; with the end of the numbers.

    Where a table with `size` elements for each is small, numbers are counted from the least value;
    this needs no sorting.
    """
    if not len(values):
        return values, 0
    first, last = int(values.min()), int(values.max())
    if (last - first) * size < _TABLE_PER_ACCESS * len(values) + _SMALL_TABLE:
        return values - first, last - first + 1
    found, number = np.unique(values, return_inverse=True)
    return number, len(found)


def _count_distinct(values: IntArray) -> int:
    number, end = _numbers_from_0(values)
    seen = np.zeros(end, np.bool_)
    seen[number] = True
    return int(np.count_nonzero(seen))


class L1Reads(NamedTuple):
    """What the L1s read from the L2.

    Attributes:
        miss_rate: The share of the sectors of cacheable loads that miss.
        coalesced_share: Sectors read from the L2 over those that the L1s ask its coalescer for.
    """

    miss_rate: float
    coalesced_share: float


def l1_reads(stream: AccessStream, busy: ActiveRegion, geometry: CacheGeometry) -> L1Reads:
    """Model the L1 of one SM, and how the reads of all SMs are merged.

    The blocks that are resident together are simulated, and where they access little those that
    follow them, which find what they left (`_turns`). Stores are written through, and kept.
    """
    chosen = ~stream.store & stream.cached
    bypassing = np.where(stream.store | stream.cached, 0.0, 1.0)
    if not chosen.any():
        return L1Reads(1.0, _coalesced_share(stream, bypassing, busy, geometry))
    filling = chosen | stream.store & stream.cached & ~stream.reads & ~stream.copied
    turns = _turns(stream, filling, busy, geometry)
    accesses, factor = sum(map(len, turns)) * int(filling.sum()), 1
    while accesses // factor > _LARGEST_L1_SIMULATION and factor < L1_SETS:
        factor *= 2
    rows: list[IntArray] = []
    sectors: list[IntArray] = []
    times: list[NDArray[np.float64]] = []
    numbers: list[IntArray] = []
    paces = _paces(stream, turns, geometry)
    for number, order in enumerate(turns):
        for block in order[:, None]:
            sector = translate_sectors(stream, block, busy)[0, filling]
            kept = _sets(sector // SECTORS_PER_LINE) < L1_SETS // factor
            rows.append(np.flatnonzero(filling)[kept])
            sectors.append(sector[kept])
            times.append(next(paces)[rows[-1]])
            numbers.append(np.full(len(rows[-1]), number))
    row, sector, turn = map(np.concatenate, (rows, sectors, numbers))
    time = np.concatenate(times)
    by_time = np.argsort(time, kind="stable")
    row, sector, time, turn = row[by_time], sector[by_time], time[by_time], turn[by_time]
    window = np.cumsum(np.diff(time, prepend=time[:1]) > 0, dtype=np.int64)
    again = stream.again[row]
    missed = _l1_misses(window, sector, again, geometry.l1_bytes, factor) & chosen[row]
    row, turn = row[missed], turn[missed]
    # What the mean block misses. The turns behind the first stand for all blocks behind its wave.
    of_first = min(geometry.wave, busy.blocks) / busy.blocks if len(turns) > 1 else 1.0
    later = (1 - of_first) / max(len(turns) - 1, 1)
    shares = np.array([of_first] + [later] * (len(turns) - 1)) / [len(turn) for turn in turns]
    missed_rows = np.bincount(row, shares[turn], len(stream.sector))
    by_row = missed_rows.astype(np.float64) * factor
    miss_rate = min(float(by_row.sum()) / stream.load_sectors, 1.0)
    return L1Reads(miss_rate, _coalesced_share(stream, by_row + bypassing, busy, geometry))


def _sets(lines: IntArray) -> IntArray:
    """The set of each line in an L1."""
    lines, sets = np.ascontiguousarray(lines), np.empty(len(lines), np.int64)
    cache_code.function("find_sets", 3)(lines.ctypes.data, len(lines), sets.ctypes.data)
    return sets


def _l1_misses(
    window: IntArray, sector: IntArray, again: NDArray[np.bool_], l1_bytes: int, factor: int
) -> NDArray[np.bool_]:
    """The accesses that miss the L1, of which one set in `factor` is simulated."""
    if not l1_bytes:
        return misses(window, sector, SECTORS_PER_LINE, 0)
    windows, units = (np.ascontiguousarray(array, np.int64) for array in (window, sector))
    missed, caches = np.zeros(len(units), np.bool_), EmptyCaches()
    cache = caches.add_l1s(1, l1_bytes, factor)
    addresses = [array.ctypes.data for array in (cache, windows, units, again)]
    cache_code.function("find_l1_misses", 6)(*addresses, len(units), missed.ctypes.data)
    return missed


def _paces(
    stream: AccessStream, turns: Sequence[IntArray], geometry: CacheGeometry
) -> Iterator[NDArray[np.float64]]:
    """When each block of the turns accesses each row: in windows, if all have one pace.

    Blocks that wait at barriers do not: a multiprocessor serves the oldest that has work to do, so
    they spread over their rounds.
    """
    _, first = np.unique(stream.round, return_index=True)
    if geometry.paces is None or geometry.resident_blocks == 1 or len(first) == 1:
        for turn, order in enumerate(turns):
            for _ in order:
                yield (stream.window + turn * stream.windows).astype(np.float64)
        return
    last = np.append(first[1:], len(stream.round)) - 1
    number = np.cumsum(np.diff(stream.round, prepend=stream.round[:1]) != 0, dtype=np.int64)
    begin = stream.window[first]
    progress = (stream.window - begin[number]) / (stream.window[last] - begin + 1)[number]
    lines, _ = distinct_rows(np.stack([number, stream.sector // SECTORS_PER_LINE], axis=1))
    count, blocks = np.bincount(lines[:, 0]).astype(np.float64), sum(map(len, turns))
    for times in read_times(count, blocks, geometry.paces, geometry.resident_blocks):
        lasts = np.diff(times, append=times[-1] + geometry.paces.block_clocks / len(times))
        yield times[number] + progress * lasts[number]


def _turns(
    stream: AccessStream, chosen: NDArray[np.bool_], busy: ActiveRegion, geometry: CacheGeometry
) -> list[IntArray]:
    """The blocks that one SM runs, by their positions in launch order: those resident together.

    The first blocks are distributed one to each SM in turn, so those of one SM are
    `multiprocessors` apart. Later ones start wherever a block has ended: which of a wave come to
    this SM is drawn at random, again that far apart.

    Where some accesses are not affine and so known for the recorded block only, the one turn is
    that of the blocks resident together with it. Else there are as many turns as can be simulated.
    """
    wave = geometry.wave

    def of_wave(start: int, first: int) -> IntArray:
        return np.arange(start + first, min(start + wave, busy.blocks), geometry.multiprocessors)

    if not stream.affine[chosen].all():
        recorded = min(int(busy.order(np.array([stream.origin]))[0]), busy.blocks - 1)
        first = recorded // wave * wave + recorded % geometry.multiprocessors
        return [np.arange(first, min(first + wave, busy.blocks), geometry.multiprocessors)]
    turns, draws = [of_wave(0, 0)], np.random.default_rng(0)
    size = len(turns[0])
    most = min(_LARGEST_TURNS // int(size * chosen.sum()), _MOST_TURN_BLOCKS // size)
    for start in range(wave, busy.blocks, wave)[: most - 1 if most >= _LEAST_TURNS else 0]:
        turn = of_wave(start, int(draws.integers(geometry.multiprocessors)))
        turns += [turn] if len(turn) else []
    return turns


def _coalesced_share(
    stream: AccessStream, missed: NDArray[np.float64], busy: ActiveRegion, geometry: CacheGeometry
) -> float:
    """Sectors read from the L2 over sectors that miss the L1s.

    All blocks of the first wave that shift a row by the same distance read the same sector in the
    same window. As many of them as miss are its readers, each on a multiprocessor of its own. In
    later waves, those of them that follow one another in launch order are, of what was measured:
    loads through the L1 that read more than one sector of a line. Where blocks read in rounds, this
    is simulated instead (`ReadMerging`). Bulk copies merge by the groups of multiprocessors
    (`CopyMerging`).

    Args:
        stream: The stream of one block.
        missed: How often each row misses an L1.
        busy: The blocks that access memory.
        geometry: The caches.
    """
    total = missed.sum()
    blocks = min(busy.blocks, geometry.wave)
    if not total or not (geometry.merged_by_readers or geometry.reads):
        return 1.0
    share, later = np.ones((2, len(stream.sector)))
    alone = _lone_sectors(stream)
    following = np.arange(blocks, min(busy.blocks, blocks + geometry.wave))

    def shifts(order: IntArray, row: IntArray) -> IntArray:
        distance = busy.coordinates(order) - np.array(stream.origin)
        return shifts_of(stream, row, distance)[:, 0]

    for group in _row_groups(stream, np.arange(blocks), busy):
        if not group.lines:
            asked = blocks * missed[group.rows].mean() / len(group.shifts)
            readers = min(max(asked, 1.0), geometry.multiprocessors)
            share[group.rows] = geometry.coalesced_reads(readers) / readers
            neighbours = _equal_neighbours(shifts(following, group.rows[:1]))
            readers = max(neighbours * missed[group.rows].mean(), 1.0)
            rows = group.rows[stream.cached[group.rows] & ~alone[group.rows]]
            later[rows] = 1 / _merged(geometry.merged_later, np.asarray(readers))
            copied = group.rows[stream.copied[group.rows]]
            if geometry.copies is not None and copied.size:
                shared = shifts(np.arange(blocks), copied[:1])
                share[copied] = geometry.copies.first_reads(shared, geometry.multiprocessors)
                later[copied] = geometry.copies.later_reads(share[copied[0]])
    if geometry.reads is not None:
        waiting = (missed > 0) & stream.affine & ~stream.copied
        merged = _merged_in_rounds(stream, missed, waiting, busy, geometry)
        if merged is not None:
            share[~stream.copied], later[~stream.copied] = 1.0, 1.0
            share[waiting] = merged.first_wave
            if blocks * _FEW_WAVES < busy.blocks and geometry.reads.between_barriers:
                waiting &= stream.cached & ~alone
            later[waiting] = merged.later
    of_first_wave, of_later = ((each * missed).sum() / total for each in (share, later))
    return float(of_later + (of_first_wave - of_later) * blocks / busy.blocks)


def _merged_in_rounds(
    stream: AccessStream,
    missed: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    busy: ActiveRegion,
    geometry: CacheGeometry,
) -> MergedReads | None:
    """How the chosen rows' reads are merged.

    Of very many reads of blocks that wait at barriers, the first rounds are simulated. Others are
    in step at first and drift apart later: theirs are simulated in full, or not at all.
    """
    assert geometry.reads is not None
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return MergedReads(1.0, 1.0)
    blocks = min(busy.blocks, MERGED_WAVES * geometry.wave)
    # One read stands for all rows of a round that have a stride, and so the same readers.
    table = np.column_stack([stream.round[rows], stream.stride[rows], stream.phase[rows]])
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    lines, _ = distinct_rows(np.stack([group, stream.sector[rows] // SECTORS_PER_LINE], axis=1))
    count = np.bincount(lines[:, 0]).astype(np.float64)
    sectors, rows = np.bincount(group, missed[rows]), rows[first]
    number = stream.round[rows]
    if not geometry.reads.between_barriers and blocks * len(rows) > _MOST_FREE_READS:
        return None
    work = 1 / len(np.unique(number))
    most = _MOST_READS if geometry.reads.between_barriers else _MOST_FREE_READS
    kept = number <= number[min(max(most // blocks, 1), len(rows)) - 1]
    rows, sectors, count, number = rows[kept], sectors[kept], count[kept], number[kept]
    distance = busy.coordinates(np.arange(blocks)) - np.array(stream.origin)
    place = (stream.sector[rows] + shifts_of(stream, rows, distance)).reshape(-1)
    rounds = ReadRounds(
        starts=np.arange(blocks + 1) * len(rows),
        round=np.tile(number, blocks),
        place=place,
        line=place // SECTORS_PER_LINE,
        unit=place * SECTOR_BYTES // geometry.dram_access_bytes,
        sectors=np.tile(sectors, blocks),
        lines=np.tile(count, blocks),
        work=np.full(len(place), work),
    )
    return merge_reads(rounds, geometry.reads, geometry.multiprocessors, geometry.resident_blocks)


def _lone_sectors(stream: AccessStream) -> NDArray[np.bool_]:
    """Whether each row's sector is the only one of its line in its window."""
    lines = np.stack([stream.window, stream.sector // SECTORS_PER_LINE], axis=1)
    _, line = distinct_rows(lines)
    alone: NDArray[np.bool_] = np.bincount(line)[line] == 1
    return alone


def _equal_neighbours(values: IntArray) -> float:
    """How many equal values follow one another, in the mean."""
    return len(values) / (1 + np.count_nonzero(np.diff(values))) if len(values) else 1.0


def _sampling_factor(accesses: int, most: int) -> int:
    """The smallest sampling factor that leaves no more than `most` accesses."""
    factors = (factor for factor in _SAMPLING_FACTORS if accesses // factor <= most)
    return next(factors, _SAMPLING_FACTORS[-1])


class DramBytes(NamedTuple):
    """Bytes that move between the L2 and DRAM, for the whole grid.

    Attributes:
        loaded: Bytes read for loads.
        for_atomics: Bytes read for atomics, which the L2 executes on its own data.
        written: Bytes written back.
    """

    loaded: int
    for_atomics: int
    written: int


def dram_bytes(
    stream: AccessStream,
    busy: ActiveRegion,
    geometry: CacheGeometry,
    weights: tuple[float, float] = (1.0, 1.0),
) -> DramBytes:
    """Model the DRAM traffic of a grid.

    Two waves of blocks are simulated in the L2; every further wave is taken to miss as much as the
    second one, but each byte is read once at least. Where all arrays fit in the L2, each byte is
    read at most once. The same holds for arrays with data-dependent accesses, if these fit. Written
    lines stay in the L2 as far as they fit together with the loaded ones.

    Args:
        stream: The stream of one block.
        busy: The blocks that access memory.
        geometry: The caches.
        weights: How much more than all accesses loads occur in the grid than in the stream, and the
            others: a long block is recorded up to some access.
    """
    if not len(stream.sector):
        return DramBytes(0, 0, 0)
    of_loads, of_others = weights
    total = busy.blocks
    wave = geometry.wave
    simulated = min(total, 2 * wave)
    groups = [
        (start // wave, group)
        for start in range(0, simulated, wave)
        for group in _row_groups(stream, np.arange(start, min(start + wave, simulated)), busy)
    ]
    accesses = sum(len(group.rows) * len(group.shifts) for _, group in groups)
    factor = _sampling_factor(accesses, _LARGEST_SIMULATION)
    unit_sectors = geometry.dram_access_bytes // SECTOR_BYTES
    window_of_row = stream.window.astype(np.uint16)  # short integers are sorted in linear time
    windows: list[NDArray[np.uint16]] = []
    units: list[IntArray] = []
    rows: list[IntArray] = []
    for number, group in groups:
        for row, sector in _sampled_sectors(stream, group, factor):
            windows.append(window_of_row[row] + np.uint16(number * stream.windows))
            units.append(sector // unit_sectors)
            rows.append(row)
    window_of_access = np.concatenate(windows)
    by_time = np.argsort(window_of_access, kind="stable")
    window = window_of_access[by_time].astype(np.int64)
    unit, row = np.concatenate(units)[by_time], np.concatenate(rows)[by_time]
    capacity = geometry.l2_bytes / _copies(stream, groups, wave, geometry)
    missed = misses(window, unit, SECTORS_PER_LINE // unit_sectors, capacity / factor)
    start_of_second = np.searchsorted(window, stream.windows)
    first_misses, later_misses = (
        np.bincount(row[part][missed[part]], minlength=len(stream.sector))
        for part in (slice(start_of_second), slice(start_of_second, None))
    )
    # The simulation has the recorded accesses only, and every block as active as the recorded one.
    scale = busy.block_equivalents / total / stream.recorded_share
    remaining = max(total - wave, 0) / min(wave, max(total - wave, 1))

    def bytes_read(chosen: NDArray[np.bool_]) -> float:
        first, later = int(first_misses[chosen].sum()), int(later_misses[chosen].sum())
        return (first + later * remaining) * factor * geometry.dram_access_bytes * scale

    def at_most_once(total: float, arrays: NDArray[np.bool_], held: NDArray[np.bool_]) -> float:
        fits = _array_bytes(stream, held) <= capacity
        return min(total, _array_bytes(stream, arrays)) if fits else total

    def read_for(atomics: bool) -> float:
        reading = stream.reads & (stream.store == atomics)
        by_data = reading & ~stream.affine
        weight = of_others if atomics else of_loads
        affine_bytes = weight * bytes_read(reading & stream.affine)
        if busy.blocks > simulated:
            affine_bytes = max(affine_bytes, _distinct_bytes(stream, reading, busy, geometry))
        data_bytes = at_most_once(weight * bytes_read(by_data), by_data, by_data)
        return at_most_once(affine_bytes + data_bytes, reading, np.ones_like(reading))

    loaded, for_atomics = read_for(False), read_for(True)
    written = _count_distinct(unit[stream.store[row]]) * factor * geometry.dram_access_bytes
    written = int(written * total / simulated * scale * of_others)
    footprint = written + loaded  # atomics write where they read
    evicted = max(0.0, 1 - geometry.l2_bytes / footprint) if footprint else 0.0
    return DramBytes(
        *(
            round(total_bytes / geometry.dram_access_bytes) * geometry.dram_access_bytes
            for total_bytes in (loaded, for_atomics, written * evicted)
        )
    )


def _distinct_bytes(
    stream: AccessStream, chosen: NDArray[np.bool_], busy: ActiveRegion, geometry: CacheGeometry
) -> int:
    """Bytes that the affine ones of the chosen rows access in the whole grid, each counted once.

    0 where there are too many rows and blocks to tell.
    """
    if busy.blocks > _MOST_BLOCKS:
        return 0
    groups = [
        _RowGroup(rows, group.shifts, 0)
        for group in _row_groups(stream, np.arange(busy.blocks), busy)
        if not group.lines and len(rows := group.rows[chosen[group.rows]])
    ]
    accesses = sum(len(group.rows) * len(group.shifts) for group in groups)
    if not 0 < accesses <= _MOST_DISTINCT:
        return 0
    factor = _sampling_factor(accesses, _LARGEST_SIMULATION)
    sectors = [part for group in groups for _, part in _sampled_sectors(stream, group, factor)]
    units = np.concatenate(sectors) * SECTOR_BYTES // geometry.dram_access_bytes
    return _count_distinct(units) * factor * geometry.dram_access_bytes


def _copies(
    stream: AccessStream,
    groups: Sequence[tuple[int, _RowGroup]],
    blocks: int,
    geometry: CacheGeometry,
) -> float:
    """How many partitions of the L2 hold a line, in the mean over all lines.

    What is written is held in front of its memory. What one multiprocessor reads is also held in
    its own partition, and what several read, in all. The replay keeps writes in the writer's
    partition, too; here, where all blocks read and write at one pace, products of matrices would
    then overflow the L2 that on an H200 do not.

    Args:
        stream: The stream of one block.
        groups: The rows with their shifts, by wave.
        blocks: Blocks of a wave.
        geometry: The caches.
    """
    copies = lines = 0.0
    for _, group in groups:
        written = np.count_nonzero(stream.store[group.rows])
        read = len(group.rows) - written
        is_shared = group.lines or blocks > len(group.shifts)
        held = geometry.l2_partitions if is_shared else (1 + geometry.l2_partitions) / 2
        copies += (written + read * held) * len(group.shifts)
        lines += len(group.rows) * len(group.shifts)
    return max(copies / lines, 1.0) if lines else 1.0


def _array_bytes(stream: AccessStream, chosen: NDArray[np.bool_]) -> int:
    """Bytes of the arrays that the chosen rows lie in."""
    arrays, _ = distinct_rows(np.stack([stream.low[chosen], stream.high[chosen]], axis=1))
    return int((arrays[:, 1] - arrays[:, 0] + 1).sum()) * SECTOR_BYTES


class _RowGroup(NamedTuple):
    """Rows of a stream that all blocks shift by the same distances.

    Attributes:
        rows: Numbers of the rows.
        shifts: The distinct distances: in sectors for affine rows, else in lines of their array.
        lines: Lines of that array; 0 for affine rows.
    """

    rows: IntArray
    shifts: IntArray
    lines: int


def _row_groups(stream: AccessStream, order: IntArray, busy: ActiveRegion) -> Iterator[_RowGroup]:
    """The rows of a stream with their shifts for the blocks at some positions.

    Many blocks shift a row by the same distance: in one window, their accesses count once.
    """
    affine, by_data = np.flatnonzero(stream.affine), np.flatnonzero(~stream.affine)
    distance = busy.coordinates(order) - np.array(stream.origin)
    moves = np.column_stack([stream.stride[affine], stream.phase[affine]])
    different, group = distinct_rows(moves)
    for number in range(len(different)):
        rows = affine[group == number]
        yield _RowGroup(rows, distinct(shifts_of(stream, rows[:1], distance)[:, 0]), 0)
    group, lines, shifts = shift_by_data(stream, by_data, order, busy)
    for number, size in enumerate(lines.tolist()):
        yield _RowGroup(by_data[group == number], distinct(shifts[:, number]), size)


def _sampled_sectors(
    stream: AccessStream, group: _RowGroup, factor: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows of a group and their sectors at each shift, for one line in `factor`."""
    sectors, lows = stream.sector[group.rows], stream.low[group.rows]
    if not group.lines:
        # Lines whose hash is in the sample. Shifts by whole lines keep rows in one line together:
        # the first one decides for all.
        line = np.arange(len(sectors))
        if not (group.shifts % SECTORS_PER_LINE).any():
            line = sectors // SECTORS_PER_LINE
        starts = np.flatnonzero(np.diff(line, prepend=line[:1] - 1))
        lengths = np.diff(starts, append=len(line))
        for shifts in _batches(group.rows, group.shifts):
            lines = (sectors[starts] + shifts[:, None]) // SECTORS_PER_LINE
            shift, run = np.nonzero(hash_lines(lines) % factor == 0)
            rows = lengths[run]
            ends = np.cumsum(rows)
            row = np.repeat(starts[run] - (ends - rows), rows) + np.arange(rows.sum())
            yield group.rows[row], sectors[row] + np.repeat(shifts[shift], rows)
        return
    # Computing all sectors to drop most of them would take long for many rows. So the array is
    # extended to a multiple of the factor, and the sample is one residue class of its lines: the
    # shift tells which rows fall into it.
    lines = np.array(-(-group.lines // factor) * factor)
    class_of_row = (sectors - lows) // SECTORS_PER_LINE % factor
    class_of_shift = -group.shifts % factor
    for residue in np.unique(class_of_shift):
        row = np.flatnonzero(class_of_row == residue)
        for shifts in _batches(row, group.shifts[class_of_shift == residue]):
            shifted = wrap_sectors(sectors[row], lows[row], shifts[:, None], lines)
            yield np.tile(group.rows[row], len(shifts)), shifted.reshape(-1)


def _batches(rows: IntArray, shifts: IntArray) -> Iterator[IntArray]:
    """Cut shifts into batches, so that each row with each shift of a batch is a limited number."""
    step = max(1, _LARGEST_BATCH // max(len(rows), 1))
    for start in range(0, len(shifts) if len(rows) else 0, step):
        yield shifts[start : start + step]
