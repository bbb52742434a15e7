"""What a block does to memory in time, from a few neighbouring blocks that ran together.

The stream of one block is recorded; its neighbours in x, y and z say how each access moves from
block to block (`translate`). What does not move in step with the block, since data decides it, is
taken to move through its array as evenly as the blocks come: exactly right for segments that lie
one behind the other, as a sparse matrix's rows do, and as good as any draw for what is scattered.
All that a block touches in one array moves together, so that what it uses twice stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.execution_trace import ExecutionTrace
from memlab.device.emulator.machine.memory import DeviceArray
from memlab.device.emulator.machine.threads import BlockBox, block_coordinates
from memlab.device.emulator.program.program import Program
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES
from memlab.kernels.launch import Dim3

IntArray = NDArray[np.int64]

SECTORS_PER_LINE = LINE_BYTES // SECTOR_BYTES
"""L1 and L2 allocate lines and fill sectors."""
PROBE_BLOCKS = 5
"""Blocks that are recorded: one, its neighbours in x, y, z, and one to check by."""
_WINDOWS = 256  # a window must be short against the reuse that a cache can hold


@dataclass(frozen=True)
class AccessStream:
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
        low: The first sector of the array that it lies in.
        high: The last one.
        affine: Whether the access moves in step with the block.
        windows: How many windows there are.
        sectors: Sectors of all accesses before rows were made distinct.
        load_sectors: Those of cacheable loads.
        cacheable_share: Those over the sectors of all loads.
        recorded_share: Accesses that were recorded over all that the block does; those left out
            are taken to be like them.
    """

    origin: tuple[int, int, int]
    window: IntArray
    sector: IntArray
    store: NDArray[np.bool_]
    reads: NDArray[np.bool_]
    cached: NDArray[np.bool_]
    move: IntArray
    low: IntArray
    high: IntArray
    affine: NDArray[np.bool_]
    windows: int
    sectors: int
    load_sectors: int
    cacheable_share: float
    recorded_share: float = 1.0

    def equivalent_blocks(self, sectors: int) -> float:
        """How many blocks like this one touch so many sectors together."""
        return sectors * self.recorded_share / self.sectors if self.sectors else 0.0


@dataclass(frozen=True)
class ActiveRegion:
    """The part of a grid that touches memory.

    Attributes:
        region: The blocks among which all of them lie.
        like: How many blocks like the recorded one do as much as all together.
    """

    region: BlockBox
    block_equivalents: float

    @property
    def blocks(self) -> int:
        """How many blocks do something, as far as that is known."""
        return max(min(int(np.ceil(self.block_equivalents)), int(np.prod(self._extent))), 1)

    def coordinates(self, order: IntArray) -> IntArray:
        """Coordinates of blocks by their place in launch order among them, shape (blocks, 3)."""
        first = np.array([each.start for each in self.region])
        places: IntArray = block_coordinates(order, self._extent) + first
        return places

    def order(self, blocks: IntArray) -> IntArray:
        """The places of blocks in launch order: `coordinates` the other way round."""
        x, y, _ = self._extent
        places: IntArray = (blocks - [each.start for each in self.region]) @ np.array([1, x, x * y])
        return places

    @property
    def _extent(self) -> Dim3:
        x, y, z = map(len, self.region)
        return x, y, z


def probe_blocks(
    grid: Dim3, origin: tuple[int, int, int], piece: BlockBox | None = None
) -> IntArray:
    """The block to record, its neighbours in x, y, z, and one to check by; shape (5, 3).

    A neighbour is the block before, since the last ones of a grid are often cut short, or the
    next where there is none before. Where the grid is one block wide the origin is repeated. The
    last block lies two steps away in each dimension, or one where there are no two; if that is a
    neighbour again, then on the other side.

    Args:
        grid: Blocks in x, y, z.
        origin: The block to record.
        piece: Blocks among which the others are looked for first.
    """
    steps, check = [], []
    for axis, at in enumerate(origin):
        within = range(grid[axis])
        if piece is not None and len(piece[axis]) > 2:  # a step, and one to check it by
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
    program: Program, trace: ExecutionTrace, probes: IntArray, arrays: Sequence[DeviceArray]
) -> AccessStream:
    """Turn the trace of the probe blocks into the stream of one of them.

    Args:
        program: What ran.
        trace: Its accesses; the chunk's blocks were those of `probe_blocks`.
        probes: Those blocks, shape (5, 3).
        arrays: Those of global memory, by their address.
    """
    windows = max(min(len(trace.events), _WINDOWS), 1)
    steps = np.diagonal(probes[1:4] - probes[0])
    times = (probes[4] - probes[0]) * steps  # steps are 1, -1 or 0
    # A row for each event and warp of the block, and the sectors that belong to it.
    warps: list[tuple[IntArray, ...]] = []
    counts: list[IntArray] = []
    touched: list[IntArray] = []
    for number, (index, base, sectors) in enumerate(trace.events):
        row = program.steps[index].row
        bases = base.reshape(len(probes), -1) // SECTOR_BYTES
        takes_part = (sectors.per_warp > 0).reshape(bases.shape)
        differences = (bases[1:4] - bases[0]).T
        # Moves that are no whole number of sectors round differently from block to block.
        affine = abs(bases[4] - bases[0] - differences @ times) <= 2
        count = bases.shape[1]
        per_warp = sectors.per_warp[:count]
        warps.append(
            (
                np.full(count, number * windows // len(trace.events)),
                np.full(count, int(row.kind != "load")),
                np.full(count, int(not row.bypass_l1)),
                np.full(count, int(row.kind != "store")),
                *(differences * steps).T,
                affine.astype(np.int64),
                np.logical_and.reduce(takes_part).astype(np.int64),
                np.full(count, index),
            )
        )
        counts.append(per_warp)
        lines = bases[0] // SECTORS_PER_LINE * SECTORS_PER_LINE
        touched.append(np.repeat(lines, per_warp) + sectors.offsets[: int(per_warp.sum())])
    if not trace.events:
        empty = np.zeros(0, np.int64)
        warps, counts, touched = [(empty,) * 10], [empty], [empty]
    table = np.stack([np.concatenate(each) for each in zip(*warps, strict=True)], axis=1)
    count_of_warp, sector = np.concatenate(counts), np.concatenate(touched)
    table = _warp_strides(table)
    loads = table[:, 1] == 0
    all_loads = int(count_of_warp[loads].sum())
    cacheable_loads = int(count_of_warp[loads & (table[:, 2] == 1)].sum())
    # Sorting whole rows is slow: number what the warps' rows have in common, then sort pairs.
    table, group_of_warp = np.unique(table, axis=0, return_inverse=True)
    group = np.repeat(group_of_warp.reshape(-1), count_of_warp)
    lowest = int(sector.min(initial=0))
    span = int(sector.max(initial=0)) - lowest + 1
    group, sector = np.divmod(np.unique(group * span + (sector - lowest)), span)
    table, sector = table[group], sector + lowest
    low, high = _array_bounds(sector, arrays)
    return AccessStream(
        origin=(int(probes[0][0]), int(probes[0][1]), int(probes[0][2])),
        window=table[:, 0],
        sector=sector,
        store=table[:, 1].astype(np.bool_),
        reads=table[:, 3].astype(np.bool_),
        cached=table[:, 2].astype(np.bool_),
        move=table[:, 4:7],
        low=low,
        high=high,
        affine=table[:, 7].astype(np.bool_),
        windows=windows,
        sectors=int(count_of_warp.sum()),
        load_sectors=cacheable_loads,
        cacheable_share=cacheable_loads / all_loads if all_loads else 1.0,
        recorded_share=len(trace.events) / max(trace.seen, len(trace.events), 1),
    )


def _warp_strides(table: IntArray) -> IntArray:
    """Say of each warp's access whether it moves in step with the block, and by how much.

    A warp that took no part in one of the probe blocks has nothing to be compared with: it moves
    as its instruction does elsewhere, where all that was seen of that moves in step.

    Args:
        table: Window, store, cached, reads, moves in x, y and z, whether the probes agree on
            these, whether all took part, instruction; shape (warps, 10).

    Returns:
        The first 8 columns. What does not move in step has no moves.
    """
    moves, affine, compared, instruction = (
        table[:, 4:7],
        table[:, 7] == 1,
        table[:, 8] == 1,
        table[:, 9],
    )
    seen, first = np.unique(instruction[compared], return_index=True)
    astray = np.unique(instruction[compared & ~affine])
    known = np.isin(instruction, np.setdiff1d(seen, astray))
    if len(seen):
        place = np.searchsorted(seen, instruction).clip(max=len(seen) - 1)
        moves = np.where(compared[:, None], moves, moves[compared][first][place])
    affine = np.where(compared, affine, known)
    moves = np.where(affine[:, None], moves, 0)
    return np.column_stack([table[:, :4], moves, affine])


def _array_bounds(sector: IntArray, arrays: Sequence[DeviceArray]) -> tuple[IntArray, IntArray]:
    """The first and the last sector of the array that each sector lies in."""
    if not arrays:
        return sector, sector
    first = np.array([each.address // SECTOR_BYTES for each in arrays])
    last = np.array([(each.address + max(each.size, 1) - 1) // SECTOR_BYTES for each in arrays])
    array = (np.searchsorted(first, sector, "right") - 1).clip(min=0)
    return first[array], last[array]


def line_shifts(
    stream: AccessStream, lines: IntArray, order: IntArray, busy: ActiveRegion
) -> IntArray:
    """By how many lines blocks move what does not move in step, shape (blocks, arrays).

    Args:
        stream: Of one block.
        lines: Lines that each array has, shape (arrays,).
        order: The blocks' places in launch order.
        busy: How many blocks share the arrays.
    """
    origin = int(busy.order(np.array([stream.origin]))[0])
    share = (order - origin) / busy.blocks
    moved: IntArray = np.floor(share[:, None] * lines).astype(np.int64) % lines
    return moved


def array_lines(stream: AccessStream) -> IntArray:
    """How many lines each row's array has."""
    lines: IntArray = (stream.high - stream.low) // SECTORS_PER_LINE + 1
    return lines


def translate_sectors(stream: AccessStream, order: IntArray, busy: ActiveRegion) -> IntArray:
    """The sectors that other blocks touch, shape (blocks, rows of the stream).

    Args:
        stream: Of one block.
        order: The others' places in launch order.
        busy: Among which blocks.
    """
    distance = busy.coordinates(order) - np.array(stream.origin)
    sectors: IntArray = stream.sector + distance @ stream.move.T
    wild = np.flatnonzero(~stream.affine)
    if wild.size:
        sizes, which = np.unique(array_lines(stream)[wild], return_inverse=True)
        moved = line_shifts(stream, sizes, order, busy)[:, which.reshape(-1)]
        sectors[:, wild] = wrap_sectors(
            stream.sector[wild], stream.low[wild], moved, sizes[which.reshape(-1)]
        )
    return sectors


def wrap_sectors(sector: IntArray, low: IntArray, lines: IntArray, size: IntArray) -> IntArray:
    """Sectors some lines further on in their array, of so many lines, and round its end."""
    place = sector - low + lines * SECTORS_PER_LINE
    moved: IntArray = low + place % (size * SECTORS_PER_LINE)
    return moved
