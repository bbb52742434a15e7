"""Records a representative block: its global accesses and its instruction path, in time order.

Counters are sums over the grid (`counting.py`). The cache models and the time model need more: the
order in which one block accesses memory, and how its addresses change from block to block. Five
blocks are executed for that: one, its neighbours in x, y and z, and one that checks the strides
(`models/address_streams.py`).

`record_block` runs first, before the grid is counted, at the block in the middle of the grid. It
also tells what emulating a block costs. `find_representative` runs after the count. It compares
the sectors of the whole grid with those of the recorded block, times the number of blocks. If the
two differ by more than 10 %, the middle block is not typical; it may even be idle. Another block
is then recorded:

- With exact block classes, the middle block of every piece is executed, and the median class is
  recorded: half of the grid's sectors belong to blocks that touch no more than this one does.
- Otherwise, the median chunk among those that were executed for the count is executed again, and
  a block near its median is recorded.

Blocks that touch no memory are left out of the active region and get an instruction path of their
own.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import EmulationTimeoutError
from memlab.device.emulation.block_classes import middle_block
from memlab.device.emulation.counting import ExecutedChunk, GridCounts, StratumSample
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.barrier_log import BarrierLog, BarrierOperations
from memlab.device.emulator.machine.execution_trace import (
    ConstantAccesses,
    ExecutionTrace,
    GlobalAccesses,
    PathTrace,
    WarpExecutions,
    WarpPath,
)
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.machine.tally import is_unequal
from memlab.device.emulator.machine.threads import BlockBox
from memlab.device.emulator.models import address_streams
from memlab.device.emulator.models.address_streams import AccessStream, IntArray
from memlab.device.emulator.models.atomic_contention import (
    AtomicContention,
    atomic_contention,
    common_stores,
)
from memlab.device.emulator.models.repeated_stores import repeated_stores
from memlab.device.emulator.sampling.block_sample import (
    GridPartition,
    blocks_of_clusters,
    cluster_grid,
    van_der_corput,
    whole_clusters,
)
from memlab.kernels.launch import NO_CLUSTER, Dim3

_CHUNK_OVERHEAD_INSTRUCTIONS = 10
"""Instructions per lane that take as long as starting a chunk (0.4 ms)."""
_REPRESENTATIVE_RANGE = 0.9, 1.1
"""The recorded block stands for the grid if the grid's sectors are within this range, as a multiple
of the block's sectors times the number of blocks."""
_PIECES_PER_BATCH = 128
"""Pieces whose middle blocks are executed at once, largest pieces first. The next batch is tried
only if no block of this one touches memory."""
_RERUN_LANE_INSTRUCTIONS = 20_000_000
"""The size of the part of a chunk that is executed again to find a block in it: 0.1 to 0.6 s."""
_MEDIAN_RANGE = 0.4, 0.6
"""The shares of the sectors, over blocks by rising sectors, between which the median blocks lie."""
_MIN_RERUN_BLOCKS = 4
"""Blocks that are executed again, whatever they cost."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RepresentativeBlock:
    """The recorded behaviour of a block and its neighbours.

    Attributes:
        stream: The sectors of global memory that the block touches.
        path: The path of the warp that executed most instructions.
        idle_path: The same for a block that touches no memory; `path` if no such block is known.
        lane_instructions_per_block: The cost of emulating a block: the instructions of its warps,
            times 32 lanes, since masked lanes cost as much, plus its share of the overhead of a
            chunk.
        executions: How often each warp of the block executed each instruction.
        idle_executions: The same of a block that touches no memory; `executions` if none is known.
        region: The smallest known box of the grid that holds all blocks that touch memory.
        contention: Where the blocks' atomics meet, for each atomic, by its position.
        common_stores: The same of their stores, as `common_stores` gives it.
        barriers: What its warps do to the `mbarrier`s in its shared memory.
        repeated_stores: The shares of the sectors of stores that their warp has just stored to, by
            the position of the store.
        constants: Its accesses to constant memory.
    """

    stream: AccessStream
    path: WarpPath
    idle_path: WarpPath
    lane_instructions_per_block: float
    executions: WarpExecutions
    idle_executions: WarpExecutions
    region: BlockBox
    contention: Mapping[int, AtomicContention]
    common_stores: Mapping[int, float]
    barriers: BarrierOperations = field(default_factory=BarrierOperations)
    repeated_stores: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    constants: ConstantAccesses | None = None


def record_block(
    execution: Execution,
    piece: BlockBox | None = None,
    region: BlockBox | None = None,
    origin: Dim3 | None = None,
) -> RepresentativeBlock:
    """Execute a block and its neighbours, record what they do, and reset the memory.

    Args:
        execution: The launch.
        piece: The piece of the grid whose middle block is recorded, and in which its neighbours
            are looked for first; None for the whole grid.
        region: The box of blocks that touch memory; None for the whole grid.
        origin: The block to record, instead of the one in the middle of the piece.

    Raises:
        KernelFault: As `Execution.run`.
        EmulationTimeoutError: The time was up.
    """
    grid, trace, log = execution.launch.grid, ExecutionTrace(), BarrierLog()
    whole = (range(grid[0]), range(grid[1]), range(grid[2]))
    blocks = address_streams.neighborhood_blocks(
        grid, origin or middle_block(piece or whole), piece
    )
    executed = first_of_clusters(execution, blocks)
    try:
        counts = execution.observe(executed, trace, log)
    except EmulationTimeoutError as error:
        raise execution.out_of_time(error, 0) from None
    execution.reset()
    path, executions, accesses = trace.path(), trace.executions(), trace.accesses()
    if execution.launch.cluster != NO_CLUSTER:
        accesses = accesses.of_blocks([_number(executed, block) for block in blocks], len(executed))
    return RepresentativeBlock(
        stream=address_streams.build_access_stream(
            execution.program, accesses, blocks, execution.memory.allocations
        ),
        path=path,
        idle_path=path,
        lane_instructions_per_block=counts.lane_instructions / len(executed)
        + _CHUNK_OVERHEAD_INSTRUCTIONS * execution.grid.padded_threads,
        executions=executions,
        idle_executions=executions,
        region=region or whole,
        contention=atomic_contention(execution.program, accesses, blocks),
        common_stores=common_stores(execution.program, accesses, blocks),
        barriers=log.operations(),
        repeated_stores=repeated_stores(execution.program, accesses, blocks),
        constants=trace.constants(),
    )


def first_of_clusters(execution: Execution, blocks: IntArray) -> IntArray:
    """Blocks with the others of their clusters, for one chunk; the first block comes first."""
    cluster = execution.launch.cluster
    if cluster == NO_CLUSTER:
        return blocks
    executed = whole_clusters(blocks, cluster)
    place = _number(executed, blocks[0])
    return executed[[place, *range(place), *range(place + 1, len(executed))]]


class EnoughObservedError(Exception):
    """An observer has seen as much of a block as it needs."""


def observe_blocks(execution: Execution, blocks: IntArray, observer: ExecutionPolicy) -> None:
    """Execute blocks until an observer has seen enough; the outputs of the launch are lost.

    It also ends, without an error, with a fault or at the time limit.

    Args:
        execution: The launch.
        blocks: The coordinates of the blocks, of one chunk; shape (blocks, 3).
        observer: What observes them.
    """
    execution.reset()
    with contextlib.suppress(EnoughObservedError, KernelFault, EmulationTimeoutError):
        execution.run(first_of_clusters(execution, blocks), observers=[observer])
    execution.reset()


def _number(blocks: IntArray, block: IntArray) -> int:
    """The place of a block among others."""
    return int(np.flatnonzero((blocks == block).all(axis=1))[0])


def find_representative(
    execution: Execution, first: RepresentativeBlock, sectors: int, counts: GridCounts
) -> RepresentativeBlock:
    """Return a block that stands for the others: the first one, or a typical one if it does not.

    If blocks are executed here, the outputs of the launch are lost.

    Args:
        execution: The launch, which has been counted.
        first: The block in the middle of the grid.
        sectors: The sectors of global memory that the whole grid touched.
        counts: The counters of the grid, and the samples they come from.

    Returns:
        A block of the median class: half of the grid's sectors are touched by blocks that touch
        no more. The first block, if it is typical or if the time is up.
    """
    least, most = _REPRESENTATIVE_RANGE
    if (
        not sectors
        or least <= first.stream.equivalent_blocks(sectors) / execution.launch.blocks <= most
    ):
        return first
    execution.reset()
    try:
        if counts.partition.exact:
            return _representative_of_pieces(execution, first, counts.partition)
        return _representative_of_chunks(execution, first, sectors, counts.samples)
    except EmulationTimeoutError:
        return first


def _representative_of_pieces(
    execution: Execution, first: RepresentativeBlock, partition: GridPartition
) -> RepresentativeBlock:
    """Record the median class, known from the middle blocks of the pieces of an exact partition.

    Of a piece of clusters, each block of the middle one stands for those of its rank.

    Returns `first` if no middle block touches memory.
    """
    cluster = execution.launch.cluster
    grid = cluster_grid(execution.launch.grid, cluster)
    extents = replace(partition, periods=(1, 1, 1)).pieces(grid)
    pieces: list[BlockBox] = [(x, y, z) for x, y, z in itertools.product(*extents)]
    pieces.sort(key=lambda piece: -math.prod(map(len, piece)))
    for start in range(0, len(pieces), _PIECES_PER_BATCH):
        batch = pieces[start : start + _PIECES_PER_BATCH]
        middles = np.array([middle_block(piece) for piece in batch])
        blocks = blocks_of_clusters(middles, cluster)
        sectors, _ = _touched_sectors(execution, blocks)
        execution.reset()
        if sectors.any():
            break
    else:
        return first
    each = execution.launch.cluster_blocks
    boxes = [_box_of_clusters(piece, cluster) for piece in batch]
    active = [boxes[number // each] for number in np.flatnonzero(sectors).tolist()]
    weights = np.repeat([math.prod(map(len, piece)) for piece in batch], each)
    median = _weighted_median_index(sectors, weights)
    x, y, z = blocks[median].tolist()
    recorded = record_block(execution, boxes[median // each], _enclosing_box(active), (x, y, z))
    if sectors.all():
        return recorded
    return _with_idle_path(execution, recorded, blocks[sectors.argmin()])


def _representative_of_chunks(
    execution: Execution,
    first: RepresentativeBlock,
    sectors: int,
    samples: Sequence[StratumSample],
) -> RepresentativeBlock:
    """Record a median block of the median chunk among those that were executed for the count.

    A chunk's counters are a sum over its blocks, so the chunk, or a part of it if it takes long,
    is executed again to count every block by itself.
    """
    executed = [(sample, chunk) for sample in samples for chunk in sample.executed_chunks]
    touched = np.array([chunk.sectors for _, chunk in executed])
    if not touched.any():
        return first
    blocks = np.array([chunk.blocks for _, chunk in executed])
    weights = blocks * [sample.size / sample.done for sample, _ in executed]
    sample, chunk = executed[_weighted_median_index(touched / blocks, weights)]
    chunk_blocks = sample.blocks[chunk.positions]
    rerun, moved, distinct = _rerun_blocks(execution, chunk_blocks, chunk)
    x, y, z = rerun[_typical_block_index(moved, distinct)].tolist()
    recorded = record_block(execution, origin=(x, y, z))
    active_blocks = [part.blocks[run.positions] for part, run in executed if run.sectors]
    active = _enclosing_box([_bounding_box(coordinates) for coordinates in active_blocks])
    region = _narrowed_region(active, _bounding_box(chunk_blocks), _bounding_box(rerun[moved > 0]))
    block_equivalents = recorded.stream.equivalent_blocks(sectors)
    if math.prod(map(len, region)) < _REPRESENTATIVE_RANGE[0] * block_equivalents:
        region = active  # other chunks have active blocks where this chunk has none
    recorded = replace(recorded, region=region)
    idle = rerun[moved == 0]
    if not len(idle) and not touched.all():
        sample, chunk = executed[int(touched.argmin())]
        idle = sample.blocks[chunk.positions]
    return _with_idle_path(execution, recorded, idle[0]) if len(idle) else recorded


def _rerun_blocks(
    execution: Execution, blocks: IntArray, chunk: ExecutedChunk
) -> tuple[IntArray, IntArray, IntArray]:
    """Execute parts of a chunk again, one after the other, until some block touches memory.

    The memory is reset.

    Returns:
        The blocks of the last part, shape (blocks, 3); the sectors that each touched; and the
        distinct sectors among these.
    """
    afford = _RERUN_LANE_INSTRUCTIONS * chunk.blocks // max(chunk.lane_instructions, 1)
    turns = -(-len(blocks) // max(afford, _MIN_RERUN_BLOCKS))
    clusters = blocks.reshape(-1, execution.launch.cluster_blocks, 3)
    turns = min(turns, len(clusters))
    for turn in van_der_corput(turns):
        part = clusters[turn::turns].reshape(-1, 3)
        moved, distinct = _touched_sectors(execution, part)
        execution.reset()
        if moved.any():
            return part, moved, distinct
    # No block touched memory this time: the order of execution decides.
    equal = np.ones(len(blocks), np.int64)
    return blocks, equal, equal


def _with_idle_path(
    execution: Execution, recorded: RepresentativeBlock, block: Sequence[int] | IntArray
) -> RepresentativeBlock:
    """Return the recorded block with the instruction path of an idle block."""
    trace = ExecutionTrace()
    execution.observe(first_of_clusters(execution, np.array([block])), trace)
    return replace(recorded, idle_path=trace.path(), idle_executions=trace.executions())


def extreme_warps(execution: Execution) -> tuple[WarpExecutions, WarpExecutions] | None:
    """How often the warps that executed least and most executed each instruction.

    Args:
        execution: The launch, which has been counted. Its memory may be reset.

    Returns:
        The executions of each of these two. None if the work of the warps is not known or about
        equal, if the time was up, or if a warp executes less when it runs again.
    """
    work = execution.work.of_whole_grid()
    if work is None or execution.program.waits_for_grid or not is_unequal(work):
        return None
    found = []
    try:
        for number in (int(work.argmin()), int(work.argmax())):
            alone = _warp_alone(execution, work, number)
            # It may work on what other blocks left.
            found.append(alone or _warp_among_others(execution, work, number))
    except EmulationTimeoutError:
        return None
    finally:
        execution.reset()
    least, most = found
    return None if least is None or most is None else (least, most)


def _warp_alone(execution: Execution, work: IntArray, number: int) -> WarpExecutions | None:
    """Execute the block of a warp again, and note what this warp does; None if that is less."""
    place, warp = divmod(number, work.shape[1])
    z, y, x = np.unravel_index(place, execution.launch.grid[::-1])
    trace = PathTrace()
    execution.reset()
    execution.observe(first_of_clusters(execution, np.array([[x, y, z]])), trace)
    return _executions_of_warp(trace, warp, int(work.flat[number]))


def _warp_among_others(execution: Execution, work: IntArray, number: int) -> WarpExecutions | None:
    """The same after all blocks that run before it, and among those that run at the same time."""
    place, warp = divmod(number, work.shape[1])
    z, y, x = np.unravel_index(place, execution.launch.grid[::-1])
    execution.reset()
    for chunk in execution.chunks(execution.blocks):
        found = np.flatnonzero((chunk == (x, y, z)).all(axis=1))
        if len(found):
            trace = PathTrace(int(found[0]))
            execution.run(chunk, observers=[trace])
            return _executions_of_warp(trace, warp, int(work.flat[number]))
        execution.run(chunk)
    return None


def _executions_of_warp(trace: PathTrace, warp: int, work: int) -> WarpExecutions | None:
    """What a warp of the followed block executed; None if that is less than so much work."""
    found, chosen = trace.executions(), slice(warp, warp + 1)
    if found.warps[warp].sum() < work:
        return None
    return WarpExecutions(
        found.warps[chosen], found.lanes[chosen], found.rounds[chosen], found.rests[chosen]
    )


def _weighted_median_index(sectors: IntArray | Floats, blocks: IntArray | Floats) -> int:
    """The index of the median class, weighted by sectors.

    Args:
        sectors: Sectors per block of each class.
        blocks: Blocks of each class.
    """
    work, rising = sectors * blocks, np.argsort(sectors, kind="stable")
    return int(rising[np.searchsorted(np.cumsum(work[rising]), work.sum() / 2)])


def _typical_block_index(moved: IntArray, distinct: IntArray) -> int:
    """The index of a median block that touches sectors repeatedly as often as all blocks do.

    Args:
        moved: The sectors that each block touches.
        distinct: The distinct sectors among these.
    """
    rising = np.argsort(moved, kind="stable")
    done = np.cumsum(moved[rising]) / moved.sum()
    first, last = np.searchsorted(done, _MEDIAN_RANGE)
    around = rising[first : last + 1]
    share = distinct[around] / moved[around]
    return int(around[np.abs(share - distinct.sum() / moved.sum()).argmin()])


def _touched_sectors(execution: Execution, blocks: IntArray) -> tuple[IntArray, IntArray]:
    """The sectors of global memory that each block touches, and the distinct sectors among these.

    The memory is not reset.
    """
    moved, distinct = [], []
    for chunk in execution.chunks(blocks):
        trace, count = ExecutionTrace(), len(chunk)
        execution.observe(chunk, trace)
        touched, unique = _sectors_per_block(trace.accesses(), count)
        moved.append(touched)
        distinct.append(unique)
    return np.concatenate(moved), np.concatenate(distinct)


def _sectors_per_block(trace: GlobalAccesses, count: int) -> tuple[IntArray, IntArray]:
    """The sectors, and the distinct sectors, that each of `count` blocks of a chunk touched."""
    owner = np.repeat(trace.warp // (trace.warps // count), trace.count)
    sector = address_streams.sectors_of(trace)
    moved = np.bincount(owner, minlength=count)
    span = int(sector.max(initial=0)) + 1
    touched = address_streams.distinct(owner * span + sector)
    return moved, np.bincount(touched // span, minlength=count)


def _bounding_box(blocks: IntArray) -> BlockBox:
    """The smallest box that holds some blocks, shape (blocks, 3)."""
    x, y, z = (range(int(axis.min()), int(axis.max()) + 1) for axis in blocks.T)
    return x, y, z


def _narrowed_region(region: BlockBox, chunk: BlockBox, working: BlockBox) -> BlockBox:
    """The region, cut to the active blocks of a chunk along axes where the chunk spans it."""
    x, y, z = (
        inner if outer == side else side
        for side, outer, inner in zip(region, chunk, working, strict=True)
    )
    return x, y, z


def _box_of_clusters(clusters: BlockBox, cluster: Dim3) -> BlockBox:
    """The blocks of a box of clusters."""
    x, y, z = (
        range(side.start * blocks, side.stop * blocks)
        for side, blocks in zip(clusters, cluster, strict=True)
    )
    return x, y, z


def _enclosing_box(pieces: Sequence[BlockBox]) -> BlockBox:
    """The smallest part of the grid that holds some pieces."""
    x, y, z = (
        range(min(piece[axis].start for piece in pieces), max(piece[axis].stop for piece in pieces))
        for axis in range(3)
    )
    return x, y, z
