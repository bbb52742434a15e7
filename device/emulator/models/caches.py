"""L1, L2 and DRAM traffic from the addresses that a few neighbouring blocks touched.

From the stream of one block (`streams.py`), those of all blocks resident on a multiprocessor, or
in a wave on the whole device, are laid side by side and run through an LRU cache. Time is cut into
windows: within one, accesses are a set, and between windows the least recently used lines make
room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.models.address_streams import (
    SECTORS_PER_LINE,
    AccessStream,
    ActiveRegion,
    IntArray,
    array_lines,
    line_shifts,
    translate_sectors,
    wrap_sectors,
)
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES

_LARGEST_SIMULATION = 2_000_000  # accesses; more are thinned out by lines, capacity with them
_LARGEST_L1_SIMULATION = 8_000_000  # likewise, of one multiprocessor
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
"""One line in so many. Primes, since accesses often lie some power of two apart."""


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


def misses(
    window: IntArray, unit: IntArray, units_per_line: int, capacity_bytes: float
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


def l1_miss_rate(stream: AccessStream, busy: ActiveRegion, geometry: CacheGeometry) -> float:
    """Share of a multiprocessor's cacheable load sectors that miss its L1.

    Blocks are handed out in launch order, one to each multiprocessor in turn, so those resident
    together lie `multiprocessors` apart: the first ones or, where what they touch is known of the
    recorded one alone, those that are with it. Stores go through and are not kept.
    """
    chosen = ~stream.store & stream.cached
    if not chosen.any():
        return 1.0
    wave = geometry.resident_blocks * geometry.multiprocessors
    first = 0
    if not stream.affine[chosen].all():
        recorded = min(int(busy.order(np.array([stream.origin]))[0]), busy.blocks - 1)
        first = recorded // wave * wave + recorded % geometry.multiprocessors
    order = np.arange(first, min(first + wave, busy.blocks), geometry.multiprocessors)
    thinning = _sampling_factor(len(order) * int(chosen.sum()), _LARGEST_L1_SIMULATION)
    if thinning == 1:
        sectors = translate_sectors(stream, order, busy)[:, chosen]
        window, sector = np.repeat(stream.window[chosen], len(order)), sectors.T.reshape(-1)
    else:
        window, sector = _sampled_loads(stream, order, busy, thinning)
    missed = misses(window, sector, SECTORS_PER_LINE, geometry.l1_bytes / thinning)
    return min(int(missed.sum()) * thinning / (stream.load_sectors * len(order)), 1.0)


def _sampling_factor(accesses: int, most: int) -> int:
    """How far so many accesses are thinned out."""
    return next(
        (each for each in _SAMPLING_FACTORS if accesses // each <= most), _SAMPLING_FACTORS[-1]
    )


def _sampled_loads(
    stream: AccessStream, order: IntArray, busy: ActiveRegion, thinning: int
) -> tuple[IntArray, IntArray]:
    """The cacheable loads of blocks in time order, of one line in `thinning`."""
    chosen = np.flatnonzero(~stream.store & stream.cached)
    windows: list[IntArray] = []
    sectors: list[IntArray] = []
    for block in order:
        sector = translate_sectors(stream, block[None], busy)[0, chosen]
        kept = _hash(sector // SECTORS_PER_LINE) % thinning == 0
        windows.append(stream.window[chosen][kept])
        sectors.append(sector[kept])
    window, sector = np.concatenate(windows), np.concatenate(sectors)
    by_time = np.argsort(window, kind="stable")
    return window[by_time], sector[by_time]


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


def dram_bytes(stream: AccessStream, busy: ActiveRegion, geometry: CacheGeometry) -> DramBytes:
    """Count what moves to and from memory.

    Two waves of blocks go through the L2; what the second one misses is what every further wave
    misses. But where all arrays fit the L2 each byte is missed at most once, and so are those of
    arrays that fit and are read as data decides. Written lines stay in the L2 as far as they fit
    beside the rest.
    """
    if not len(stream.sector):
        return DramBytes(0, 0, 0)
    total = busy.blocks
    wave = geometry.multiprocessors * geometry.resident_blocks
    simulated = min(total, 2 * wave)
    waves = [
        list(_group_by_shift(stream, np.arange(start, min(start + wave, simulated)), busy))
        for start in range(0, simulated, wave)
    ]
    accesses = sum(len(each.rows) * len(each.moved) for groups in waves for each in groups)
    thinning = _sampling_factor(accesses, _LARGEST_SIMULATION)
    unit_sectors = geometry.dram_access_bytes // SECTOR_BYTES
    windows: list[IntArray] = []
    units: list[IntArray] = []
    rows: list[IntArray] = []
    for number, groups in enumerate(waves):
        for group in groups:
            for row, sector in _sampled_sectors(stream, group, thinning):
                windows.append(stream.window[row] + number * stream.windows)
                units.append(sector // unit_sectors)
                rows.append(row)
    window, unit, row = (np.concatenate(each) for each in (windows, units, rows))
    by_time = np.argsort(window, kind="stable")
    window, unit, row = window[by_time], unit[by_time], row[by_time]
    missed = misses(window, unit, SECTORS_PER_LINE // unit_sectors, geometry.l2_bytes / thinning)
    # Of the accesses that all blocks do, those of the stream times its blocks were laid out.
    scale = busy.block_equivalents / total / stream.recorded_share
    remaining = max(total - wave, 0) / min(wave, max(total - wave, 1))

    def bytes_read(chosen: NDArray[np.bool_]) -> float:
        read = missed & chosen[row]
        first = int((read & (window < stream.windows)).sum())
        later = int(read.sum()) - first
        return (first + later * remaining) * thinning * geometry.dram_access_bytes * scale

    def at_most_once(bytes_: float, arrays: NDArray[np.bool_], held: NDArray[np.bool_]) -> float:
        fits = _array_bytes(stream, held) <= geometry.l2_bytes
        return min(bytes_, _array_bytes(stream, arrays)) if fits else bytes_

    def read_for(atomics: bool) -> float:
        reading = stream.reads & (stream.store == atomics)
        wild = reading & ~stream.affine
        found = bytes_read(reading & stream.affine) + at_most_once(bytes_read(wild), wild, wild)
        return at_most_once(found, reading, np.ones_like(reading))

    loaded, for_atomics = read_for(False), read_for(True)
    written = len(np.unique(unit[stream.store[row]])) * thinning * geometry.dram_access_bytes
    written = int(written * total / simulated * scale)
    footprint = written + loaded  # what atomics read lies where they write
    evicted = max(0.0, 1 - geometry.l2_bytes / footprint) if footprint else 0.0
    return DramBytes(
        *(
            round(each / geometry.dram_access_bytes) * geometry.dram_access_bytes
            for each in (loaded, for_atomics, written * evicted)
        )
    )


def _array_bytes(stream: AccessStream, chosen: NDArray[np.bool_]) -> int:
    """Size of the arrays that some rows lie in."""
    arrays = np.unique(np.stack([stream.low[chosen], stream.high[chosen]], axis=1), axis=0)
    return int((arrays[:, 1] - arrays[:, 0] + 1).sum()) * SECTOR_BYTES


class _RowGroup(NamedTuple):
    """Rows of a stream that move alike.

    Attributes:
        rows: Which.
        moved: How far some blocks move them, each distance once: sectors where they move in step
            with the block, else lines in their array.
        lines: Lines of that array; 0 where they move in step.
    """

    rows: IntArray
    moved: IntArray
    lines: int


def _group_by_shift(
    stream: AccessStream, order: IntArray, busy: ActiveRegion
) -> Iterator[_RowGroup]:
    """Split a stream into rows that move alike, with how far they move for the given blocks.

    Many blocks move a row equally far: what they touch in the same window is touched once.
    """
    distance = busy.coordinates(order) - np.array(stream.origin)
    affine, wild = np.flatnonzero(stream.affine), np.flatnonzero(~stream.affine)
    moves, kind = np.unique(stream.move[affine], axis=0, return_inverse=True)
    for number, move in enumerate(moves):
        yield _RowGroup(affine[kind.reshape(-1) == number], np.unique(distance @ move), 0)
    sizes, kind = np.unique(array_lines(stream)[wild], return_inverse=True)
    for number, moved in enumerate(line_shifts(stream, sizes, order, busy).T):
        yield _RowGroup(wild[kind == number], np.unique(moved), int(sizes[number]))


def _sampled_sectors(
    stream: AccessStream, group: _RowGroup, thinning: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Lay rows out at each distance and keep one line in `thinning`: rows and their sectors."""
    rows, lines = group.rows, group.lines
    if not lines:
        for row, moved in _batches(rows, group.moved):
            sector = stream.sector[row] + moved
            kept = _hash(sector // SECTORS_PER_LINE) % thinning == 0
            yield row[kept], sector[kept]
        return
    # Laying out most of them in vain would take long where rows are many: of an array that is
    # whole classes of lines long, one class is kept, and the distance says which rows are in it.
    lines = -(-lines // thinning) * thinning
    class_of_row = (stream.sector[rows] - stream.low[rows]) // SECTORS_PER_LINE % thinning
    class_wanted = -group.moved % thinning
    for each in np.unique(class_wanted):
        chosen = rows[class_of_row == each]
        for row, moved in _batches(chosen, group.moved[class_wanted == each]):
            yield row, wrap_sectors(stream.sector[row], stream.low[row], moved, np.array(lines))


def _batches(rows: IntArray, moved: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Each row with each distance, no more at once than memory should hold."""
    step = max(1, _LARGEST_SIMULATION // max(len(rows), 1))
    for start in range(0, len(moved) if len(rows) else 0, step):
        batch = moved[start : start + step]
        yield np.tile(rows, len(batch)), np.repeat(batch, len(rows))


def _hash(lines: IntArray) -> IntArray:
    """Spread line numbers, so that thinning takes an even share of any stride."""
    mixed = lines.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (mixed >> np.uint64(40)).astype(np.int64)
