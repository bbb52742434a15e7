"""Access streams: the sectors that a block accesses over time, and their strides between blocks.

The stream of a representative block is recorded; its neighbours in x, y and z give the stride of
each access per step of the block index (`translate_sectors`). An access whose address depends on
data has no such stride. Where the neighbour's accesses to an array lie about as far behind as equal
parts of the array would, they are modelled as advancing in proportion to the block's position in
launch order: that is exact for segments that follow one another, such as the rows of a sparse
matrix. Others, such as the pages of a cache, are scattered evenly over the array; parts in
proportion could meet its pages again and again. All such accesses of a block to one array move
together, so that reuse within the block is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access, is_multicast
from memlab.device.emulator.machine.execution_trace import GlobalAccesses
from memlab.device.emulator.machine.memory import DeviceArray
from memlab.device.emulator.machine.threads import BlockBox, block_coordinates
from memlab.device.emulator.models.access_groups import number_groups
from memlab.device.emulator.models.read_rounds import number_rounds
from memlab.device.emulator.program.program import Program
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES
from memlab.kernels.launch import Dim3

IntArray = NDArray[np.int64]

SECTORS_PER_LINE = LINE_BYTES // SECTOR_BYTES
"""L1 and L2 allocate lines and fill sectors."""
NEIGHBORHOOD_BLOCKS = 5
"""Blocks that are recorded: one, its neighbours in x, y and z, and one that checks the strides."""
_WINDOWS = 256  # a window must be short compared with the reuse distance that a cache can hold
_STORE, _CACHED, _GROUP = 2, 3, -1  # columns of the table in `build_access_stream`
_KEYS = 2**62  # numbers of rows stay below this
_UNEVEN_BYTES = 2 * SECTOR_BYTES
"""By how much strides may differ from block to block."""
_FOLLOWING_PARTS = 8
"""Segments that follow one another have lengths up to so many times the mean, or one in so many."""
_GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Multiples of it, less whole numbers, are distributed evenly (Knuth, TAOCP 3, 6.4)."""


@dataclass(frozen=True)
class AccessStream:
    """The sectors that one block accesses, in time order, and their strides.

    There is one row for each distinct (window, round, sector, direction, stride). What a group of
    accesses (`access_groups`) loads again in later windows is left out: it hits the L1.

    Attributes:
        origin: The block that was recorded.
        window: Time window of each row, from 0 up to, not including, `windows`; shape (rows,).
        round: How many times the block has waited at barriers between accesses before each row,
            ascending; shape (rows,).
        sector: Number of the 32-byte sector, shape (rows,).
        store: Whether the sector is written, shape (rows,).
        reads: Whether its bytes are needed, shape (rows,): by loads, and by atomics, which the L2
            executes.
        cached: Whether L1 keeps it, shape (rows,).
        again: Whether several accesses through the L1 are to its line in its window, shape (rows,).
        copied: Whether a bulk copy to one block reads it, shape (rows,).
        stride: Its stride in bytes per block in x, y and z; shape (rows, 3).
        phase: The byte of its sector from which it moves by strides that are no whole sectors; else
            0, as it does not matter; shape (rows,).
        low: The first sector of the array that it lies in, shape (rows,).
        high: The last one, shape (rows,).
        affine: Whether its address is an affine function of the block index, shape (rows,).
        advance: Of addresses that depend on data: how many sectors further the next block in launch
            order accesses the array, in the median over the accesses; shape (rows,).
        windows: How many windows there are.
        sectors: Sectors of all accesses, before equal rows were merged.
        load_sectors: Sectors of cacheable loads among these.
        cacheable_share: Those over the sectors of all loads.
        load_share: The sectors of all loads over `sectors`.
        recorded_share: Recorded accesses over all accesses of the block. Accesses that were not
            recorded are taken to be like the recorded ones.
    """

    origin: tuple[int, int, int]
    window: IntArray
    round: IntArray
    sector: IntArray
    store: NDArray[np.bool_]
    reads: NDArray[np.bool_]
    cached: NDArray[np.bool_]
    again: NDArray[np.bool_]
    copied: NDArray[np.bool_]
    stride: IntArray
    phase: IntArray
    low: IntArray
    high: IntArray
    affine: NDArray[np.bool_]
    advance: IntArray
    windows: int
    sectors: int
    load_sectors: int
    cacheable_share: float
    load_share: float
    recorded_share: float = 1.0

    def equivalent_blocks(self, sectors: int) -> float:
        """How many blocks like this one access so many sectors in all."""
        return sectors * self.recorded_share / self.sectors if self.sectors else 0.0


@dataclass(frozen=True)
class ActiveRegion:
    """The part of a grid that accesses memory.

    Attributes:
        region: A box that holds all blocks that access memory.
        block_equivalents: How many blocks like the recorded one do as much as all blocks together.
    """

    region: BlockBox
    block_equivalents: float

    @property
    def blocks(self) -> int:
        """The estimated number of blocks that access memory: 1 or more, within the region."""
        return max(min(int(np.ceil(self.block_equivalents)), int(np.prod(self._extent))), 1)

    def coordinates(self, order: IntArray) -> IntArray:
        """Coordinates, shape (blocks, 3), of the blocks at positions in launch order."""
        first = np.array([side.start for side in self.region])
        coordinates: IntArray = block_coordinates(order, self._extent) + first
        return coordinates

    def order(self, blocks: IntArray) -> IntArray:
        """The positions of blocks in launch order, counted in the region."""
        x, y, _ = self._extent
        first = [side.start for side in self.region]
        positions: IntArray = (blocks - first) @ np.array([1, x, x * y])
        return positions

    @property
    def _extent(self) -> Dim3:
        x, y, z = map(len, self.region)
        return x, y, z


def neighborhood_blocks(
    grid: Dim3, origin: tuple[int, int, int], piece: BlockBox | None = None
) -> IntArray:
    """The block to record, its neighbours in x, y and z, and one that checks the strides.

    A neighbour is the block before, because the last blocks of a grid are often partial, or the
    next one where there is none before. Where the grid is one block wide, the origin is repeated.
    The last block lies two steps away in each dimension, or one step where there are not two. If
    that is a neighbour again, it is taken on the other side.

    Args:
        grid: Blocks in x, y and z.
        origin: The block to record.
        piece: A box in which the other blocks are chosen where possible; None for the whole grid.

    Returns:
        Coordinates, shape (5, 3).
    """
    steps, check = [], []
    for axis, at in enumerate(origin):
        within = range(grid[axis])
        if piece is not None and len(piece[axis]) > 2:  # one for the stride, and one that checks it
            within = piece[axis]
        step = -1 if at > within.start else int(at + 1 < within.stop)
        steps.append(step)
        check.append(2 * step if at + 2 * step in within else step)
    if sum(map(abs, check)) == 1:
        axis = next(axis for axis in range(3) if check[axis])
        if 0 <= origin[axis] - check[axis] < grid[axis]:
            check[axis] = -check[axis]
    return np.array(origin) + np.vstack([np.zeros(3, int), np.diag(steps), check]).astype(np.int64)


def build_access_stream(
    program: Program, trace: GlobalAccesses, blocks: IntArray, arrays: Sequence[DeviceArray]
) -> AccessStream:
    """Turn the trace of a neighbourhood into the stream of its first block.

    Args:
        program: The kernel.
        trace: The accesses of one chunk with the blocks of `neighborhood_blocks`.
        blocks: Coordinates of these blocks, shape (5, 3).
        arrays: The arrays of global memory, by ascending address.
    """
    events = len(trace.index)
    windows = max(min(events, _WINDOWS), 1)
    access, instruction, stride, affine, advance = _strides_of_first_block(trace, blocks)
    kinds = np.array([_flags(program, at) for at in range(len(program.steps))], np.int64)
    store, cached, reads, copied = kinds.reshape(-1, 4)[instruction].T
    event, window = trace.event[access], np.arange(events) * windows // max(events, 1)
    rounds = number_rounds(program.steps, trace.index, trace.run, np.arange(events) == 0)
    issued = _of_several_windows(number_groups(program.steps, trace.index, rounds), window)
    phase = np.where((stride % SECTOR_BYTES).any(axis=1), trace.phase[access], 0)
    columns = [window[event], rounds[event], store, cached, reads, copied, stride, affine, phase]
    table = np.column_stack([*columns, issued[event]])
    count_of_access, sector = trace.count[access], sectors_of(trace, access)
    loads = store == 0
    passed = cached == 1
    lines = sector[np.repeat(passed, count_of_access)] // SECTORS_PER_LINE
    used = _lines_used_again(window[event][passed], count_of_access[passed], lines)
    all_loads = int(count_of_access[loads].sum())
    cacheable_loads = int(count_of_access[loads & (cached == 1)].sum())
    # Sorting whole rows is slow: number the distinct rows of the accesses, then sort pairs.
    table, group_of_access = distinct_rows(table)
    group = np.repeat(group_of_access, count_of_access)
    lowest = int(sector.min(initial=0))
    span = int(sector.max(initial=0)) - lowest + 1
    group, sector = np.divmod(distinct(group * span + (sector - lowest)), span)
    kept = _first_of_equals(table, group, sector, span)
    table, sector = table[group[kept]], sector[kept] + lowest
    low, high = _array_bounds(sector, arrays)
    return AccessStream(
        origin=(int(blocks[0][0]), int(blocks[0][1]), int(blocks[0][2])),
        window=table[:, 0],
        round=table[:, 1],
        sector=sector,
        store=table[:, 2].astype(np.bool_),
        reads=table[:, 4].astype(np.bool_),
        cached=table[:, 3].astype(np.bool_),
        again=np.isin(_numbered_lines(table[:, 0], sector // SECTORS_PER_LINE), used),
        copied=table[:, 5].astype(np.bool_),
        stride=table[:, 6:9],
        phase=table[:, 10],
        low=low,
        high=high,
        affine=table[:, 9].astype(np.bool_),
        advance=_advance_by_array(trace.base[access] // SECTOR_BYTES, advance, low, arrays),
        windows=windows,
        sectors=int(count_of_access.sum()),
        load_sectors=cacheable_loads,
        cacheable_share=cacheable_loads / all_loads if all_loads else 1.0,
        load_share=all_loads / max(int(count_of_access.sum()), 1),
        recorded_share=events / max(trace.seen, events, 1),
    )


def _lines_used_again(window: IntArray, count: IntArray, lines: IntArray) -> IntArray:
    """The lines that several accesses of a window are to, as `_numbered_lines`.

    Args:
        window: The window of each access.
        count: How many sectors each has.
        lines: The lines of these sectors, one access behind the other.
    """
    number = np.repeat(np.arange(len(count)), count)
    begins = (np.diff(lines, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)
    used = np.sort(_numbered_lines(window[number[begins]], lines[begins]))
    return distinct(used[1:][used[1:] == used[:-1]])


def _numbered_lines(window: IntArray, line: IntArray) -> IntArray:
    """One number for a window and a line."""
    return line * _WINDOWS + window


def _of_several_windows(group: IntArray, window: IntArray) -> IntArray:
    """The group of each access; -1 if it lies in one window, whose accesses are a set anyway."""
    if not len(group):
        return group
    first, last = np.full((2, int(group.max()) + 1), -1)
    first[group[::-1]], last[group] = window[::-1], window  # of several, the last one stays
    return np.where((first < last)[group], group, -1)


def _first_of_equals(table: IntArray, row: IntArray, sector: IntArray, span: int) -> IntArray:
    """The accesses that count: of a group's loads of a sector through the L1 the first one.

    Args:
        table: The distinct rows of the columns in `build_access_stream`, in lexicographic order.
        row: The row of each access, ascending; shape (accesses,).
        sector: Its sector, from 0 up to, not including, `span`; shape (accesses,).
        span: The end of the sectors.

    Returns:
        Positions among the accesses, ascending.
    """
    is_load = (table[:, _STORE] == 0) & (table[:, _CACHED] == 1) & (table[:, _GROUP] >= 0)
    every = np.arange(len(row))
    if not is_load.any():
        return every
    _, of_group = distinct_rows(table[:, _STORE:])
    _, of_window = distinct_rows(table[:, :_GROUP])
    loads = every[is_load[row]]
    _, first = np.unique(of_group[row[loads]] * span + sector[loads], return_index=True)
    kept = np.union1d(every[~is_load[row]], loads[first])
    # Those of several groups in one window.
    _, first = np.unique(of_window[row[kept]] * span + sector[kept], return_index=True)
    found: IntArray = kept[np.sort(first)]
    return found


def sectors_of(trace: GlobalAccesses, access: IntArray | slice = slice(None)) -> IntArray:
    """The distinct sectors of some accesses, one access behind the other."""
    count, start = trace.count[access], trace.start[access]
    line = trace.base[access] // LINE_BYTES * SECTORS_PER_LINE
    ends = np.cumsum(count)
    place = np.repeat(start - (ends - count), count) + np.arange(int(count.sum()))
    sectors: IntArray = np.repeat(line, count) + trace.offsets[place]
    return sectors


def _flags(program: Program, at: int) -> tuple[bool, bool, bool, bool]:
    """What an access does.

    Returns:
        Whether it stores, whether L1 keeps it (of stores, not those to be replaced first), whether
        it needs the bytes, and whether it is a bulk copy to one block.
    """
    row, behind = program.steps[at].row, program.steps[at + 1 : at + 2]
    is_kept = not row.bypass_l1 and not (row.kind == "store" and row.evict_first)
    is_copy = is_bulk_access(row) and row.kind == "load" and row.space == "global"
    is_copy = is_copy and not any(is_multicast(step.row) for step in behind)
    return row.kind != "load", is_kept, row.kind != "store", is_copy


def _strides_of_first_block(
    trace: GlobalAccesses, blocks: IntArray
) -> tuple[IntArray, IntArray, IntArray, NDArray[np.bool_], NDArray[np.float64]]:
    """The accesses of the first block, in order, with the strides of their addresses.

    A warp that took no part in one of the blocks cannot be compared. It gets the strides of the
    first other warp at the same instruction, if all that can be compared there are affine.

    Returns:
        Positions among the accesses; their instructions; their strides in bytes per block in x,
        y and z, shape (accesses, 3); whether these hold for all blocks; and by how many sectors
        those that are not affine differ in the next block in launch order, NaN for others. The
        strides of those that are not affine are 0.
    """
    steps = np.diagonal(blocks[1:4] - blocks[0])
    times = (blocks[4] - blocks[0]) * steps  # steps are 1, -1 or 0
    warps = trace.warps // len(blocks)
    piece = _pieces(trace)
    pieces = int(piece.max(initial=0)) + 1
    # The access of each warp in the pieces of events.
    of_warp = np.full(len(trace.index) * pieces * trace.warps, -1, np.int32)
    place = (trace.event * pieces + piece) * trace.warps + trace.warp
    of_warp[place] = np.arange(len(trace.event))
    of_block = of_warp.reshape(-1, len(blocks), warps).swapaxes(0, 1).reshape(len(blocks), -1)
    found = of_block[:, of_block[0] >= 0]
    access, compared = found[0].astype(np.int64), (found >= 0).all(axis=0)
    instruction = trace.index[trace.event[access]]
    base = trace.base[found]
    differences = (base[1:4] - base[0]).T
    stride = differences * steps
    affine = abs(base[4] - base[0] - differences @ times) <= _UNEVEN_BYTES
    others = np.flatnonzero(~compared)
    if others.size:
        # By instruction: the first access that can be compared, and whether all these are affine.
        first = np.full(int(trace.index.max()) + 1, -1)
        in_reverse = np.flatnonzero(compared)[::-1]
        first[instruction[in_reverse]] = in_reverse  # of several, the one assigned last stays
        known = first >= 0
        known[instruction[compared & ~affine]] = False
        affine[others] = known[instruction[others]]
        stride[others] = stride[first[instruction[others]]]
    # In a grid that is one block wide in x, the next block in launch order is that in y, or z.
    further = stride[:, np.flatnonzero(steps)[:1]].sum(axis=1) / SECTOR_BYTES
    advance = np.where(~affine & compared, further, np.nan)
    stride[~affine] = 0
    return access, instruction, stride, affine, advance


def _pieces(trace: GlobalAccesses) -> IntArray:
    """The number of each access among those of its warp in its event: long copies have several."""
    key = trace.event * trace.warps + trace.warp
    piece = np.zeros(len(key), np.int64)
    seen = np.zeros(len(trace.index) * trace.warps, np.bool_)
    seen[key] = True
    if np.count_nonzero(seen) < len(key):
        order = np.lexsort((trace.base, key))
        begins = np.flatnonzero(np.diff(key[order], prepend=-1))
        piece[order] = np.arange(len(key)) - np.repeat(begins, np.diff(begins, append=len(key)))
    return piece


def distinct(values: IntArray) -> IntArray:
    """The distinct values, ascending; for millions, `numpy.unique` takes seconds."""
    ordered = np.sort(values)
    differs = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return ordered[differs]


def distinct_rows(table: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct rows of a table in lexicographic order, and the number of each row in it."""
    key, extent = np.zeros(len(table), np.int64), 1
    for column in table.T if len(table) else ():
        lowest = int(column.min())
        count = int(column.max()) - lowest + 1
        if extent * count >= _KEYS:
            values = distinct(key)
            key, extent = np.searchsorted(values, key), len(values)
        key, extent = key * count + (column - lowest), extent * count
    keys = distinct(key)
    number = np.searchsorted(keys, key)
    rows = np.empty((len(keys), table.shape[1]), np.int64)
    rows[number] = table
    return rows, number


def _array_bounds(sector: IntArray, arrays: Sequence[DeviceArray]) -> tuple[IntArray, IntArray]:
    """The first and the last sector of the array that each sector lies in."""
    if not arrays:
        return sector, sector
    first = np.array([a.address // SECTOR_BYTES for a in arrays])
    last = np.array([(a.address + max(a.size, 1) - 1) // SECTOR_BYTES for a in arrays])
    array = (np.searchsorted(first, sector, "right") - 1).clip(min=0)
    return first[array], last[array]


def _advance_by_array(
    base: IntArray,
    advance: NDArray[np.float64],
    low: IntArray,
    arrays: Sequence[DeviceArray],
) -> IntArray:
    """How far the next block's accesses to the array of each row lie behind, in the median.

    Args:
        base: The first sector of each access.
        advance: Of each access, in sectors; NaN for those that do not count.
        low: The first sector of each row's array.
        arrays: The arrays, by ascending address.
    """
    counted = ~np.isnan(advance)
    first, _ = _array_bounds(base[counted], arrays)
    by_row = np.zeros(len(low), np.int64)
    for array in np.unique(first):
        by_row[low == array] = np.median(advance[counted][first == array])
    return by_row


class ShiftedArrays(NamedTuple):
    """How other blocks shift accesses whose addresses depend on data: in the same way by group.

    Attributes:
        group: The group of each row, shape (rows,).
        lines: Lines of the arrays of each group, shape (groups,).
        shifts: By how many lines each block shifts them, shape (blocks, groups).
    """

    group: IntArray
    lines: IntArray
    shifts: IntArray


def shift_by_data(
    stream: AccessStream, rows: IntArray, order: IntArray, busy: ActiveRegion
) -> ShiftedArrays:
    """Shift rows that are not affine, for the blocks at some positions.

    Args:
        stream: The stream of one block.
        rows: Numbers of the rows.
        order: The blocks' positions in launch order.
        busy: The blocks that share the arrays.
    """
    size = array_lines(stream)[rows]
    part = size * SECTORS_PER_LINE / busy.blocks
    times = stream.advance[rows] / part
    follows = (times >= 1 / _FOLLOWING_PARTS) & (times <= _FOLLOWING_PARTS)
    groups, group = np.unique(2 * size + follows, return_inverse=True)
    lines, following = np.divmod(groups, 2)
    distance = (order - int(busy.order(np.array([stream.origin]))[0]))[:, None]
    share = np.where(following, distance / busy.blocks, distance * _GOLDEN_RATIO % 1)
    return ShiftedArrays(group.reshape(-1), lines, np.floor(share * lines).astype(np.int64) % lines)


def array_lines(stream: AccessStream) -> IntArray:
    """Lines of each row's array, shape (rows,)."""
    lines: IntArray = (stream.high - stream.low) // SECTORS_PER_LINE + 1
    return lines


def translate_sectors(stream: AccessStream, order: IntArray, busy: ActiveRegion) -> IntArray:
    """The sectors that other blocks access, shape (blocks, rows of the stream).

    No kernel accesses what lies outside its arrays: affine accesses that would, by strides found
    near the recorded block, begin anew at the array's other end, as those of a remainder do.

    Args:
        stream: The stream of one block.
        order: The other blocks' positions in launch order.
        busy: The blocks that access memory.
    """
    distance = busy.coordinates(order) - np.array(stream.origin)
    sectors = stream.sector + shifts_of(stream, np.arange(len(stream.sector)), distance)
    if (sectors < stream.low).any() or (sectors > stream.high).any():
        sectors = stream.low + (sectors - stream.low) % (stream.high - stream.low + 1)
    shifted = np.flatnonzero(~stream.affine)
    if shifted.size:
        group, lines, shifts = shift_by_data(stream, shifted, order, busy)
        sectors[:, shifted] = wrap_sectors(
            stream.sector[shifted], stream.low[shifted], shifts[:, group], lines[group]
        )
    return sectors


def shifts_of(stream: AccessStream, rows: IntArray, distance: IntArray) -> IntArray:
    """By how many sectors blocks shift affine rows.

    Args:
        stream: The stream of one block.
        rows: Numbers of the rows.
        distance: The blocks' coordinates, less those of that block; shape (blocks, 3).

    Returns:
        Sectors, shape (blocks, rows).
    """
    moved: IntArray = (stream.phase[rows] + distance @ stream.stride[rows].T) // SECTOR_BYTES
    return moved


def wrap_sectors(sector: IntArray, low: IntArray, lines: IntArray, size: IntArray) -> IntArray:
    """Shift sectors within their arrays, wrapping around at the end.

    Args:
        sector: The sectors.
        low: The first sector of each one's array.
        lines: Lines to shift by.
        size: Lines of each array.
    """
    position = sector - low + lines * SECTORS_PER_LINE
    shifted: IntArray = low + position % (size * SECTORS_PER_LINE)
    return shifted


def hash_lines(lines: IntArray) -> NDArray[np.uint32]:
    """Scatter line numbers, so that sampling takes an even share of any stride."""
    mixed = lines.view(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (mixed >> np.uint64(40)).astype(np.uint32)
