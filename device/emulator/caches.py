"""L1, L2 and DRAM traffic from the addresses that a few neighbouring blocks touched.

The stream of one block is recorded; its neighbours in x, y and z say how each access moves from
block to block (`translate`). From that, the streams of all blocks resident on a multiprocessor,
or in a wave on the whole device, are laid side by side and run through an LRU cache. Time is cut
into windows: within one, accesses are a set, and between windows the least recently used lines
make room. Accesses that do not move in step with the block (an index read from memory) are drawn
at random from the range where that instruction was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.counters import Trace
from memlab.device.emulator.program import Program
from memlab.device.emulator.sampling import coordinates
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES
from memlab.kernels.launch import Dim3

Ints = NDArray[np.int64]

SECTORS_PER_LINE = LINE_BYTES // SECTOR_BYTES
"""L1 and L2 allocate lines and fill sectors."""
PROBE_BLOCKS = 5
"""Blocks that are recorded: one, its neighbours in x, y, z, and one to check by."""
_WINDOWS = 256  # a window must be short against the reuse that the cache can hold
_LARGEST_SIMULATION = 2_000_000  # accesses; more are thinned out by lines, capacity with them
_LARGEST_L1_SIMULATION = 8_000_000  # likewise, of one multiprocessor


@dataclass(frozen=True)
class Stream:
    """The sectors that one block touches, in time order, and how they move with the block.

    One row for each distinct (window, sector, direction, movement).

    Attributes:
        origin: The block that was recorded.
        window: When: 0 up to, not including, `windows`.
        sector: Which 32-byte sector.
        store: Whether it is written.
        reads: Whether its bytes must be there: loads, and atomics, which the L2 carries out.
        cached: Whether L1 keeps it.
        move: Sectors it moves by for each block in x, y, z; shape (rows, 3).
        low: Where `affine` is false: the lowest sector that the instruction was seen at.
        high: The highest.
        affine: Whether the access moves in step with the block.
        windows: How many windows there are.
        load_sectors: Sectors of cacheable loads before rows were made distinct.
        cacheable_share: Those over the sectors of all loads.
        recorded_share: Accesses that were recorded over all that the block does; those left out
            are taken to be like them.
    """

    origin: tuple[int, int, int]
    window: Ints
    sector: Ints
    store: NDArray[np.bool_]
    reads: NDArray[np.bool_]
    cached: NDArray[np.bool_]
    move: Ints
    low: Ints
    high: Ints
    affine: NDArray[np.bool_]
    windows: int
    load_sectors: int
    cacheable_share: float
    recorded_share: float = 1.0


@dataclass(frozen=True)
class CacheGeometry:
    """The caches and how blocks are spread over them.

    Attributes:
        multiprocessors: How many L1 caches there are.
        resident_blocks: Blocks that a multiprocessor holds at once.
        l1_bytes: Size of one L1, without the shared memory carved out of it.
        l2_bytes: Size of the L2.
        dram_access_bytes: What one L2 miss reads from memory.
    """

    multiprocessors: int
    resident_blocks: int
    l1_bytes: int
    l2_bytes: int
    dram_access_bytes: int


def probe_blocks(grid: Dim3, origin: tuple[int, int, int]) -> Ints:
    """The block to record, its neighbours in x, y, z, and one to check by; shape (5, 3).

    A neighbour is the block before, since the last ones of a grid are often cut short, or the
    next where there is none before. Where the grid is one block wide the origin is repeated. The
    last block lies two steps away in each dimension, or one where there are no two.
    """
    step = [-1 if at else int(extent > 1) for at, extent in zip(origin, grid, strict=True)]
    check = [
        2 * each if 0 <= at + 2 * each < extent else each
        for each, at, extent in zip(step, origin, grid, strict=True)
    ]
    return np.array(origin) + np.vstack([np.zeros(3, int), np.diag(step), check]).astype(np.int64)


def record(program: Program, trace: Trace, probes: Ints) -> Stream:
    """Turn the trace of the probe blocks into the stream of one of them.

    Args:
        program: What ran.
        trace: Its accesses; the chunk's blocks were those of `probe_blocks`.
        probes: Those blocks, shape (5, 3).
    """
    # A row for each event and warp, and the sectors that belong to it.
    warps: list[tuple[Ints, ...]] = []
    counts: list[Ints] = []
    touched: list[Ints] = []
    windows = max(min(len(trace.events), _WINDOWS), 1)
    steps = np.diagonal(probes[1:4] - probes[0])
    times = (probes[4] - probes[0]) * steps  # steps are 1, -1 or 0
    for number, (index, base, sectors) in enumerate(trace.events):
        row = program.steps[index].row
        bases = base.reshape(len(probes), -1) // SECTOR_BYTES
        differences = (bases[1:4] - bases[0]).T
        # Moves that are no whole number of sectors round differently from block to block.
        affine = abs(bases[4] - bases[0] - differences @ times) <= 2
        count = bases.shape[1]
        per_warp = sectors.per_warp[:count]
        warps.append(
            (
                np.full(count, number * windows // len(trace.events)),
                np.full(count, index),
                np.full(count, int(row.kind != "load")),
                np.full(count, int(not row.bypass_l1)),
                *(differences * steps).T,
                affine.astype(np.int64),
                np.full(count, int(row.kind != "store")),
            )
        )
        counts.append(per_warp)
        lines = bases[0] // SECTORS_PER_LINE * SECTORS_PER_LINE
        touched.append(np.repeat(lines, per_warp) + sectors.offsets[: int(per_warp.sum())])
    if not trace.events:
        empty = np.zeros(0, np.int64)
        warps, counts, touched = [(empty,) * 9], [empty], [empty]
    table = np.stack([np.concatenate(each) for each in zip(*warps, strict=True)], axis=1)
    count_of_warp, sector = np.concatenate(counts), np.concatenate(touched)
    loads = table[:, 2] == 0
    all_loads = int(count_of_warp[loads].sum())
    cacheable_loads = int(count_of_warp[loads & (table[:, 3] == 1)].sum())
    # Sorting whole rows is slow: number what the warps' rows have in common, then sort pairs.
    table, group_of_warp = np.unique(table, axis=0, return_inverse=True)
    group = np.repeat(group_of_warp.reshape(-1), count_of_warp)
    lowest = int(sector.min(initial=0))
    span = int(sector.max(initial=0)) - lowest + 1
    group, sector = np.divmod(np.unique(group * span + (sector - lowest)), span)
    table = table[group]
    low, high = _ranges(trace, program, table[:, 1])
    return Stream(
        origin=(int(probes[0][0]), int(probes[0][1]), int(probes[0][2])),
        window=table[:, 0],
        sector=sector + lowest,
        store=table[:, 2].astype(np.bool_),
        reads=table[:, 8].astype(np.bool_),
        cached=table[:, 3].astype(np.bool_),
        move=table[:, 4:7],
        low=low,
        high=high,
        affine=table[:, 7].astype(np.bool_),
        windows=windows,
        load_sectors=cacheable_loads,
        cacheable_share=cacheable_loads / all_loads if all_loads else 1.0,
        recorded_share=len(trace.events) / max(trace.seen, len(trace.events), 1),
    )


def _ranges(trace: Trace, program: Program, instruction: Ints) -> tuple[Ints, Ints]:
    """The sectors between which each row's instruction was seen in any probe block."""
    low = np.full(len(program.steps), np.iinfo(np.int64).max)
    high = np.zeros(len(program.steps), np.int64)
    for index, base, _ in trace.events:
        low[index] = min(low[index], int(base.min()) // SECTOR_BYTES)
        high[index] = max(high[index], int(base.max()) // SECTOR_BYTES)
    return low[instruction], high[instruction]


def translate(stream: Stream, blocks: Ints, generator: np.random.Generator) -> Ints:
    """The sectors that other blocks touch, shape (blocks, rows of the stream)."""
    distance = blocks - np.array(stream.origin)
    sectors: Ints = stream.sector + distance @ stream.move.T
    wild = np.flatnonzero(~stream.affine)
    if wild.size:
        sectors[:, wild] = generator.integers(
            stream.low[wild], stream.high[wild] + 1, size=(len(blocks), wild.size)
        )
    return sectors


def misses(
    window: Ints, unit: Ints, units_per_line: int, capacity_bytes: float
) -> NDArray[np.bool_]:
    """Which accesses an LRU cache does not hold.

    Args:
        window: When each access happens, not decreasing.
        unit: What it touches: a number of a sector or of a larger unit of filling.
        units_per_line: Units in a cache line.
        capacity_bytes: Size of the cache.

    Returns:
        One bool an access; of several in one window to the same unit only one can miss.
    """
    lines, line = np.unique(unit // units_per_line, return_inverse=True)
    units, number = np.unique(unit, return_inverse=True)
    line_of_unit = np.searchsorted(lines, units // units_per_line)
    last_line, last_unit = np.full(len(lines), -1), np.full(len(units), -1)
    filled = np.zeros(len(lines), np.int64)  # when each line last came in
    capacity = int(capacity_bytes // LINE_BYTES)
    count = int(window[-1]) + 1 if len(window) else 0
    touched = np.zeros(count, np.int64)  # lines by the window that touched them last
    missed = np.zeros(len(unit), np.bool_)
    bounds = np.searchsorted(window, np.arange(count + 1))
    oldest = resident = 0
    for now in range(count):
        start, stop = bounds[now], bounds[now + 1]
        if start == stop:
            continue
        used, first = np.unique(number[start:stop], return_index=True)
        while resident > capacity:
            resident -= int(touched[oldest])
            oldest += 1
        used_lines = np.unique(line[start + first])
        previous = last_line[used_lines]
        kept = previous >= oldest
        filled[used_lines[~kept]] = now
        missed[start + first] = last_unit[used] < filled[line_of_unit[used]]
        np.subtract.at(touched, previous[kept], 1)
        touched[now] = len(used_lines)
        resident += len(used_lines) - int(kept.sum())
        last_line[used_lines] = now
        last_unit[used] = now
    return missed


def l1_miss_rate(
    stream: Stream, grid: Dim3, geometry: CacheGeometry, generator: np.random.Generator
) -> float:
    """Share of a multiprocessor's cacheable load sectors that miss its L1.

    Blocks are handed out in launch order, one to each multiprocessor in turn, so those resident
    together lie `multiprocessors` apart. Stores go through and are not kept.
    """
    chosen = ~stream.store & stream.cached
    if not chosen.any():
        return 1.0
    total = grid[0] * grid[1] * grid[2]
    order = np.arange(geometry.resident_blocks, dtype=np.int64) * geometry.multiprocessors
    order = order[order < total]
    blocks = coordinates(order, grid)
    thinning = 1
    while len(blocks) * int(chosen.sum()) // thinning > _LARGEST_L1_SIMULATION:
        thinning *= 2
    if thinning == 1:
        sectors = translate(stream, blocks, generator)[:, chosen]
        window, sector = np.repeat(stream.window[chosen], len(blocks)), sectors.T.reshape(-1)
    else:
        window, sector = _thinned_loads(stream, blocks, thinning, generator)
    missed = misses(window, sector, SECTORS_PER_LINE, geometry.l1_bytes / thinning)
    return min(int(missed.sum()) * thinning / (stream.load_sectors * len(blocks)), 1.0)


def _thinned_loads(
    stream: Stream, blocks: Ints, thinning: int, generator: np.random.Generator
) -> tuple[Ints, Ints]:
    """The cacheable loads of blocks in time order, of one line in `thinning`."""
    chosen = np.flatnonzero(~stream.store & stream.cached)
    windows: list[Ints] = []
    sectors: list[Ints] = []
    for block in blocks:
        sector = translate(stream, block[None], generator)[0, chosen]
        kept = _hash(sector // SECTORS_PER_LINE) % thinning == 0
        windows.append(stream.window[chosen][kept])
        sectors.append(sector[kept])
    window, sector = np.concatenate(windows), np.concatenate(sectors)
    order = np.argsort(window, kind="stable")
    return window[order], sector[order]


class DramBytes(NamedTuple):
    """Bytes between the L2 and memory, for the whole grid.

    Attributes:
        loaded: Read for loads.
        for_atomics: Read for atomics, which change in the L2 what is there.
        written: Written back.
    """

    loaded: int
    for_atomics: int
    written: int


def dram_bytes(
    stream: Stream, grid: Dim3, geometry: CacheGeometry, generator: np.random.Generator
) -> DramBytes:
    """Count what moves to and from memory.

    Two waves of blocks go through the L2; what the second one misses is what every further wave
    misses. But accesses that are drawn at random from a range that fits the L2 miss each byte of
    it at most once. Written lines stay in the L2 as far as they fit beside the rest.
    """
    if not len(stream.sector):
        return DramBytes(0, 0, 0)
    total = grid[0] * grid[1] * grid[2]
    wave = geometry.multiprocessors * geometry.resident_blocks
    simulated = min(total, 2 * wave)
    waves = [
        list(_in_step(stream, coordinates(np.arange(start, min(start + wave, simulated)), grid)))
        for start in range(0, simulated, wave)
    ]
    thinning = 1
    accesses = sum(len(rows) * len(shifts) for groups in waves for rows, shifts in groups)
    while accesses // thinning > _LARGEST_SIMULATION:
        thinning *= 2
    unit_sectors = geometry.dram_access_bytes // SECTOR_BYTES
    windows: list[Ints] = []
    units: list[Ints] = []
    stores: list[NDArray[np.bool_]] = []
    readers: list[NDArray[np.bool_]] = []
    affines: list[NDArray[np.bool_]] = []
    for number, groups in enumerate(waves):
        for rows, shifts in groups:
            for row, sector in _thinned(stream, rows, shifts, thinning, generator):
                windows.append(stream.window[row] + number * stream.windows)
                units.append(sector // unit_sectors)
                stores.append(stream.store[row])
                readers.append(stream.reads[row])
                affines.append(stream.affine[row])
    window, unit = np.concatenate(windows), np.concatenate(units)
    order = np.argsort(window, kind="stable")
    window, unit = window[order], unit[order]
    store, reads, affine = (np.concatenate(each)[order] for each in (stores, readers, affines))
    missed = misses(window, unit, SECTORS_PER_LINE // unit_sectors, geometry.l2_bytes / thinning)
    remaining = max(total - wave, 0) / min(wave, max(total - wave, 1))

    def bytes_read(chosen: NDArray[np.bool_]) -> float:
        read = missed & reads & chosen
        first = int((read & (window < stream.windows)).sum())
        later = int(read.sum()) - first
        return (first + later * remaining) * thinning * geometry.dram_access_bytes

    def read_for(atomics: bool) -> float:
        of_kind, reach_bytes = store == atomics, _reach_bytes(stream, atomics)
        drawn_bytes = bytes_read(of_kind & ~affine)
        if reach_bytes <= geometry.l2_bytes:
            drawn_bytes = min(drawn_bytes, reach_bytes)
        return (bytes_read(of_kind & affine) + drawn_bytes) / stream.recorded_share

    loaded, for_atomics = read_for(False), read_for(True)
    written = len(np.unique(unit[store])) * thinning * geometry.dram_access_bytes
    written = int(written * total / simulated / stream.recorded_share)
    footprint = written + loaded  # what atomics read lies where they write
    evicted = max(0.0, 1 - geometry.l2_bytes / footprint) if footprint else 0.0
    return DramBytes(int(loaded), int(for_atomics), int(written * evicted))


def _reach_bytes(stream: Stream, atomics: bool) -> int:
    """Size of the ranges that loads, or atomics, are drawn from which do not move in step."""
    drawn = ~stream.affine & stream.reads & (stream.store == atomics)
    ranges = np.unique(np.stack([stream.low[drawn], stream.high[drawn]], axis=1), axis=0)
    return int((ranges[:, 1] - ranges[:, 0] + 1).sum()) * SECTOR_BYTES


def _in_step(stream: Stream, blocks: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Split a stream into rows that move alike, with how far they move for the given blocks.

    Many blocks move a row equally far: what they touch in the same window is touched once.

    Yields:
        Rows of the stream, and the distinct distances in sectors. For rows that do not move in
        step: the blocks' numbers instead.
    """
    distance = blocks - np.array(stream.origin)
    affine = np.flatnonzero(stream.affine)
    moves, kind = np.unique(stream.move[affine], axis=0, return_inverse=True)
    for number, move in enumerate(moves):
        yield affine[kind.reshape(-1) == number], np.unique(distance @ move)
    yield np.flatnonzero(~stream.affine), np.arange(len(blocks))


def _thinned(
    stream: Stream, rows: Ints, shifts: Ints, thinning: int, generator: np.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Lay rows out at each distance and keep one line in `thinning`: rows and their sectors."""
    step = max(1, _LARGEST_SIMULATION // max(len(rows), 1))
    for start in range(0, len(shifts) if len(rows) else 0, step):
        batch = shifts[start : start + step]
        if stream.affine[rows[0]]:
            sectors = stream.sector[rows] + batch[:, None]
        elif thinning > 1:  # draw as many as would be kept, from one line in so many
            drawn = rows[generator.integers(len(rows), size=len(batch) * len(rows) // thinning)]
            first, last = stream.low[drawn] // SECTORS_PER_LINE, stream.high[drawn]
            lines = np.maximum((last // SECTORS_PER_LINE - first + 1) // thinning, 1)
            line = first + thinning * generator.integers(lines)
            sector = line * SECTORS_PER_LINE + generator.integers(SECTORS_PER_LINE, size=len(line))
            yield drawn, np.clip(sector, stream.low[drawn], last)
            continue
        else:
            size = (len(batch), len(rows))
            sectors = generator.integers(stream.low[rows], stream.high[rows] + 1, size=size)
        row = np.broadcast_to(rows, sectors.shape)
        if thinning == 1:
            yield row.reshape(-1), sectors.reshape(-1)
        else:
            kept = _hash(sectors // SECTORS_PER_LINE) % thinning == 0
            yield row[kept], sectors[kept]


def _hash(lines: Ints) -> Ints:
    """Spread line numbers, so that thinning takes an even share of any stride."""
    mixed = lines.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (mixed >> np.uint64(40)).astype(np.int64)
