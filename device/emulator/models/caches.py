"""L1, L2 and DRAM traffic, modelled from the access stream of a representative block.

The streams of all blocks resident on an SM, or of a wave of blocks on the whole device, are derived
from that of one block (`address_streams`), interleaved, and run through a model of an LRU cache.
Time is divided into windows: the accesses within a window are a set, without order, and between
windows the least recently used lines are evicted.
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

_LARGEST_SIMULATION = 2_000_000
"""Accesses in a simulation of the L2. Of more accesses, a sample of the lines is simulated, in a
cache of accordingly smaller capacity."""
_LARGEST_L1_SIMULATION = 8_000_000
"""Accesses in a simulation of the L1 of one SM."""
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
    """

    multiprocessors: int
    resident_blocks: int
    l1_bytes: int
    l2_bytes: int
    dram_access_bytes: int


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
    lines, line = np.unique(unit // units_per_line, return_inverse=True)
    units, number = np.unique(unit, return_inverse=True)
    line_of_unit = np.searchsorted(lines, units // units_per_line)
    last_line, last_unit = np.full(len(lines), -1), np.full(len(units), -1)
    filled = np.zeros(len(lines), np.int64)  # the window in which each line was last filled
    capacity = int(capacity_bytes // LINE_BYTES)
    count = int(window[-1]) + 1 if len(window) else 0
    touched = np.zeros(count, np.int64)  # lines by the window of their last access
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
    """The share of an SM's cacheable load sectors that miss its L1.

    Blocks are distributed in launch order, one to each SM in turn, so the blocks resident together
    are `multiprocessors` apart. The first such blocks are simulated; or, where some accesses are
    not affine and so known for the recorded block only, those resident together with it. Stores
    are written through and not kept.
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
    factor = _sampling_factor(len(order) * int(chosen.sum()), _LARGEST_L1_SIMULATION)
    if factor == 1:
        sectors = translate_sectors(stream, order, busy)[:, chosen]
        window, sector = np.repeat(stream.window[chosen], len(order)), sectors.T.reshape(-1)
    else:
        window, sector = _sampled_loads(stream, order, busy, factor)
    missed = misses(window, sector, SECTORS_PER_LINE, geometry.l1_bytes / factor)
    return min(int(missed.sum()) * factor / (stream.load_sectors * len(order)), 1.0)


def _sampling_factor(accesses: int, most: int) -> int:
    """The smallest sampling factor that leaves no more than `most` accesses."""
    factors = (factor for factor in _SAMPLING_FACTORS if accesses // factor <= most)
    return next(factors, _SAMPLING_FACTORS[-1])


def _sampled_loads(
    stream: AccessStream, order: IntArray, busy: ActiveRegion, factor: int
) -> tuple[IntArray, IntArray]:
    """Windows and sectors of the blocks' cacheable loads, of a sample of the lines, by time."""
    chosen = np.flatnonzero(~stream.store & stream.cached)
    windows: list[IntArray] = []
    sectors: list[IntArray] = []
    for block in order:
        sector = translate_sectors(stream, block[None], busy)[0, chosen]
        kept = _hash(sector // SECTORS_PER_LINE) % factor == 0
        windows.append(stream.window[chosen][kept])
        sectors.append(sector[kept])
    window, sector = np.concatenate(windows), np.concatenate(sectors)
    by_time = np.argsort(window, kind="stable")
    return window[by_time], sector[by_time]


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


def dram_bytes(stream: AccessStream, busy: ActiveRegion, geometry: CacheGeometry) -> DramBytes:
    """Model the DRAM traffic of a grid.

    Two waves of blocks are simulated in the L2; every further wave is taken to miss as much as the
    second one. Where all arrays fit in the L2, each byte is read at most once. The same holds for
    arrays with data-dependent accesses, if these fit. Written lines stay in the L2 as far as they
    fit together with the loaded ones.
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
    accesses = sum(len(group.rows) * len(group.shifts) for groups in waves for group in groups)
    factor = _sampling_factor(accesses, _LARGEST_SIMULATION)
    unit_sectors = geometry.dram_access_bytes // SECTOR_BYTES
    windows: list[IntArray] = []
    units: list[IntArray] = []
    rows: list[IntArray] = []
    for number, groups in enumerate(waves):
        for group in groups:
            for row, sector in _sampled_sectors(stream, group, factor):
                windows.append(stream.window[row] + number * stream.windows)
                units.append(sector // unit_sectors)
                rows.append(row)
    window, unit, row = (np.concatenate(column) for column in (windows, units, rows))
    by_time = np.argsort(window, kind="stable")
    window, unit, row = window[by_time], unit[by_time], row[by_time]
    missed = misses(window, unit, SECTORS_PER_LINE // unit_sectors, geometry.l2_bytes / factor)
    # The simulation has the recorded accesses only, and every block as active as the recorded one.
    scale = busy.block_equivalents / total / stream.recorded_share
    remaining = max(total - wave, 0) / min(wave, max(total - wave, 1))

    def bytes_read(chosen: NDArray[np.bool_]) -> float:
        read = missed & chosen[row]
        first = int((read & (window < stream.windows)).sum())
        later = int(read.sum()) - first
        return (first + later * remaining) * factor * geometry.dram_access_bytes * scale

    def at_most_once(total: float, arrays: NDArray[np.bool_], held: NDArray[np.bool_]) -> float:
        fits = _array_bytes(stream, held) <= geometry.l2_bytes
        return min(total, _array_bytes(stream, arrays)) if fits else total

    def read_for(atomics: bool) -> float:
        reading = stream.reads & (stream.store == atomics)
        by_data = reading & ~stream.affine
        affine_bytes = bytes_read(reading & stream.affine)
        data_bytes = at_most_once(bytes_read(by_data), by_data, by_data)
        return at_most_once(affine_bytes + data_bytes, reading, np.ones_like(reading))

    loaded, for_atomics = read_for(False), read_for(True)
    written = len(np.unique(unit[stream.store[row]])) * factor * geometry.dram_access_bytes
    written = int(written * total / simulated * scale)
    footprint = written + loaded  # atomics write where they read
    evicted = max(0.0, 1 - geometry.l2_bytes / footprint) if footprint else 0.0
    return DramBytes(
        *(
            round(total_bytes / geometry.dram_access_bytes) * geometry.dram_access_bytes
            for total_bytes in (loaded, for_atomics, written * evicted)
        )
    )


def _array_bytes(stream: AccessStream, chosen: NDArray[np.bool_]) -> int:
    """Bytes of the arrays that the chosen rows lie in."""
    arrays = np.unique(np.stack([stream.low[chosen], stream.high[chosen]], axis=1), axis=0)
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


def _group_by_shift(
    stream: AccessStream, order: IntArray, busy: ActiveRegion
) -> Iterator[_RowGroup]:
    """Group the rows of a stream by stride, with their shifts for the blocks at some positions.

    Many blocks shift a row by the same distance: in one window, their accesses count once.
    """
    distance = busy.coordinates(order) - np.array(stream.origin)
    affine, by_data = np.flatnonzero(stream.affine), np.flatnonzero(~stream.affine)
    strides, index = np.unique(stream.stride[affine], axis=0, return_inverse=True)
    for number, stride in enumerate(strides):
        yield _RowGroup(affine[index.reshape(-1) == number], np.unique(distance @ stride), 0)
    sizes, index = np.unique(array_lines(stream)[by_data], return_inverse=True)
    for number, shifts in enumerate(line_shifts(stream, sizes, order, busy).T):
        yield _RowGroup(by_data[index == number], np.unique(shifts), int(sizes[number]))


def _sampled_sectors(
    stream: AccessStream, group: _RowGroup, factor: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows of a group and their sectors at each shift, for a sample of the lines."""
    rows, lines = group.rows, group.lines
    if not lines:
        for row, shift in _batches(rows, group.shifts):
            sector = stream.sector[row] + shift
            kept = _hash(sector // SECTORS_PER_LINE) % factor == 0
            yield row[kept], sector[kept]
        return
    # Computing all sectors to drop most of them would take long for many rows. So the array is
    # extended to a multiple of the factor, and the sample is one residue class of its lines: the
    # shift tells which rows fall into it.
    lines = -(-lines // factor) * factor
    class_of_row = (stream.sector[rows] - stream.low[rows]) // SECTORS_PER_LINE % factor
    class_of_shift = -group.shifts % factor
    for residue in np.unique(class_of_shift):
        chosen = rows[class_of_row == residue]
        for row, shift in _batches(chosen, group.shifts[class_of_shift == residue]):
            yield row, wrap_sectors(stream.sector[row], stream.low[row], shift, np.array(lines))


def _batches(rows: IntArray, shifts: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Combine each row with each shift, in batches of limited size."""
    step = max(1, _LARGEST_SIMULATION // max(len(rows), 1))
    for start in range(0, len(shifts) if len(rows) else 0, step):
        batch = shifts[start : start + step]
        yield np.tile(rows, len(batch)), np.repeat(batch, len(rows))


def _hash(lines: IntArray) -> IntArray:
    """Scatter line numbers, so that sampling takes an even share of any stride."""
    mixed = lines.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (mixed >> np.uint64(40)).astype(np.int64)
