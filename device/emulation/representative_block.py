"""A block that shows what the blocks of a grid do to memory, recorded with its neighbours.

The one in the middle of the grid is recorded first, and says what a block costs. Where the grid's
counts tell that the others do not do as it does, for it may have nothing to do at all, one is
looked for that does: in the grid's pieces, where blocks of a piece are known to do the same, and
else among those that ran together when the grid was counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import EmulationTimeoutError
from memlab.device.emulation.block_classes import middle_block
from memlab.device.emulation.counting import ExecutedChunk, GridCounts, StratumSample
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.access_costs import ExecutionTrace
from memlab.device.emulator.models import address_streams
from memlab.device.emulator.models.address_streams import SECTORS_PER_LINE, AccessStream, IntArray
from memlab.device.emulator.sampling.block_sample import GridPartition, van_der_corput
from memlab.device.emulator.sampling.decision_range import BlockBox
from memlab.device.properties import LINE_BYTES, WARP_SIZE
from memlab.kernels.launch import Dim3

_CHUNK_OVERHEAD_INSTRUCTIONS = (
    10  # of each lane: as many take as long as beginning a chunk (0.4 ms)
)
_REPRESENTATIVE_RANGE = 0.9, 1.1
"""What all blocks do, over as many of the probe's, for the probe to stand for them."""
_PIECES_PER_BATCH = 128
"""Of a grid whose blocks' kinds are known: the smaller ones are tried where these move nothing."""
_RERUN_LANE_INSTRUCTIONS = 20_000_000
"""Of blocks that ran together so many do so again, to find one among them: 0.1 to 0.6 s."""
_MEDIAN_RANGE = 0.4, 0.6  # of the work in the order of the blocks that do least: the middle kind
_MIN_RERUN_BLOCKS = 4  # blocks, however much they cost


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RepresentativeBlock:
    """What a block and its neighbours showed.

    Attributes:
        stream: What it touched.
        path: The instructions that the warp ran which ran most.
        idle: Those of a warp in a block that touches no memory; where none is known, the same.
        lane_instructions_per_block: What emulating a block costs: the instructions of its warps,
            times their lanes, since lanes that are masked off cost the same, and its share of
            what a chunk costs besides.
        region: The blocks among which all lie that touch memory.
    """

    stream: AccessStream
    path: list[tuple[int, int]]
    idle_path: list[tuple[int, int]]
    lane_instructions_per_block: float
    region: BlockBox


def record_block(
    execution: Execution,
    piece: BlockBox | None = None,
    region: BlockBox | None = None,
    origin: Dim3 | None = None,
) -> RepresentativeBlock:
    """Run a block in the middle of a piece of the grid and its neighbours, recording all.

    The memory is then as it was before.

    Args:
        execution: The launch.
        piece: None for the whole grid.
        region: The blocks among which all lie that touch memory; None for the whole grid.
        origin: The block, if not the one in the middle.

    Raises:
        KernelFault: As `Execution.run`.
        OutOfTime: The time was up.
    """
    grid, trace = execution.launch.grid, ExecutionTrace(execution.grid.padded_threads)
    whole = (range(grid[0]), range(grid[1]), range(grid[2]))
    blocks = address_streams.probe_blocks(grid, origin or middle_block(piece or whole), piece)
    try:
        tally = execution.run(blocks, trace=trace)
    except EmulationTimeoutError as error:
        raise execution.out_of_time(error, 0) from None
    execution.reset()
    path = trace.path()
    return RepresentativeBlock(
        stream=address_streams.build_access_stream(
            execution.program, trace, blocks, execution.memory.allocations
        ),
        path=path,
        idle_path=path,
        lane_instructions_per_block=sum(tally.warps) * WARP_SIZE / len(blocks)
        + _CHUNK_OVERHEAD_INSTRUCTIONS * execution.grid.padded_threads,
        region=region or whole,
    )


def find_representative(
    execution: Execution, first: RepresentativeBlock, sectors: int, counted: GridCounts
) -> RepresentativeBlock:
    """Find a block that stands for the others, if the first that was probed does not.

    What the launch wrote is forgotten then.

    Args:
        execution: The launch, which has been counted.
        first: What the grid's middle showed.
        sectors: What the whole grid touched of global memory.
        counted: What was counted, and of which blocks.

    Returns:
        The probe of a block of the middle kind: about half of what the grid moves is moved by
        blocks that do no more than it. The first one where that is typical, or where there is no
        time.
    """
    least, most = _REPRESENTATIVE_RANGE
    if (
        not sectors
        or least <= first.stream.equivalent_blocks(sectors) / execution.launch.blocks <= most
    ):
        return first
    execution.reset()
    try:
        if counted.division.exact:
            return _representative_of_pieces(execution, first, counted.division)
        return _representative_of_chunks(execution, first, sectors, counted.parts)
    except EmulationTimeoutError:
        return first


def _representative_of_pieces(
    execution: Execution, first: RepresentativeBlock, division: GridPartition
) -> RepresentativeBlock:
    """Probe the middle kind of the blocks in the middle of each piece; `first` if none works."""
    parts = replace(division, periods=(1, 1, 1)).pieces(execution.launch.grid)
    pieces: list[BlockBox] = [(x, y, z) for x, y, z in itertools.product(*parts)]
    pieces.sort(key=lambda piece: -math.prod(map(len, piece)))
    for start in range(0, len(pieces), _PIECES_PER_BATCH):
        tried = pieces[start : start + _PIECES_PER_BATCH]
        each, _ = _touched_sectors(execution, np.array([middle_block(piece) for piece in tried]))
        execution.reset()
        if each.any():
            break
    else:
        return first
    region = _enclosing_box([piece for piece, moved in zip(tried, each, strict=True) if moved])
    blocks = np.array([math.prod(map(len, piece)) for piece in tried])
    found = record_block(execution, tried[_weighted_median_index(each, blocks)], region)
    return (
        found
        if each.all()
        else _with_idle_path(execution, found, middle_block(tried[each.argmin()]))
    )


def _representative_of_chunks(
    execution: Execution, first: RepresentativeBlock, sectors: int, parts: Sequence[StratumSample]
) -> RepresentativeBlock:
    """Probe the middle kind of the blocks that ran together which are themselves of that kind.

    None of them but these run again, and of these only some, if they take long.
    """
    ran = [(part, each) for part in parts for each in part.executed_chunks]
    touched = np.array([each.touched for _, each in ran])
    if not touched.any():
        return first
    blocks = np.array([each.blocks for _, each in ran])
    stand_for = blocks * [part.size / part.done for part, _ in ran]
    chosen = _weighted_median_index(touched / blocks, stand_for)
    part, chunk = ran[chosen]
    again, moved, distinct = _rerun_blocks(execution, part.blocks[chunk.places], chunk)
    x, y, z = again[_typical_block_index(moved, distinct)].tolist()
    found = record_block(execution, origin=(x, y, z))
    boxes = [_bounding_box(part.blocks[each.places]) for part, each in ran if each.touched]
    region = _narrowed_region(
        _enclosing_box(boxes),
        _bounding_box(part.blocks[chunk.places]),
        _bounding_box(again[moved > 0]),
    )
    if math.prod(map(len, region)) < _REPRESENTATIVE_RANGE[0] * found.stream.equivalent_blocks(
        sectors
    ):
        region = _enclosing_box(boxes)  # other chunks have work where this one has none
    found = replace(found, region=region)
    idle = again[moved == 0]
    if not len(idle) and not touched.all():
        part, chunk = ran[int(touched.argmin())]
        idle = part.blocks[chunk.places]
    return _with_idle_path(execution, found, idle[0]) if len(idle) else found


def _rerun_blocks(
    execution: Execution, blocks: IntArray, chunk: ExecutedChunk
) -> tuple[IntArray, IntArray, IntArray]:
    """Run blocks again until some touch memory: those that ran, and what each touched.

    The memory is then as it was before.
    """
    afford = _RERUN_LANE_INSTRUCTIONS * chunk.blocks // max(chunk.lane_instructions, 1)
    turns = -(-len(blocks) // max(afford, _MIN_RERUN_BLOCKS))
    for turn in van_der_corput(turns):
        some = blocks[turn::turns]
        moved, distinct = _touched_sectors(execution, some)
        execution.reset()
        if moved.any():
            return some, moved, distinct
    alike = np.ones(len(blocks), np.int64)  # what they touched was for others to decide
    return blocks, alike, alike


def _with_idle_path(
    execution: Execution, found: RepresentativeBlock, block: Sequence[int] | IntArray
) -> RepresentativeBlock:
    """A probe, with the path of a block that does less."""
    trace = ExecutionTrace()
    execution.run(np.array([block]), trace=trace)
    return replace(found, idle_path=trace.path())


def _weighted_median_index(each: IntArray | Floats, blocks: IntArray | Floats) -> int:
    """The place of the kind up to which half of the work is done, by so many blocks of each."""
    work, rising = each * blocks, np.argsort(each, kind="stable")
    return int(rising[np.searchsorted(np.cumsum(work[rising]), work.sum() / 2)])


def _typical_block_index(moved: IntArray, distinct: IntArray) -> int:
    """The place of a block of about the middle kind that touches as much again as all do."""
    rising = np.argsort(moved, kind="stable")
    done = np.cumsum(moved[rising]) / moved.sum()
    first, last = np.searchsorted(done, _MEDIAN_RANGE)
    around = rising[first : last + 1]
    share = distinct[around] / moved[around]
    return int(around[np.abs(share - distinct.sum() / moved.sum()).argmin()])


def _touched_sectors(execution: Execution, blocks: IntArray) -> tuple[IntArray, IntArray]:
    """How many sectors of global memory each of some blocks touches, and how many distinct ones."""
    moved, distinct = [], []
    for chunk in execution.chunks(blocks):
        trace, count = ExecutionTrace(), len(chunk)
        execution.run(chunk, trace=trace)
        each, seen = _sectors_per_block(trace, count)
        moved.append(each)
        distinct.append(seen)
    return np.concatenate(moved), np.concatenate(distinct)


def _sectors_per_block(trace: ExecutionTrace, count: int) -> tuple[IntArray, IntArray]:
    """Of each of so many blocks that ran together: the sectors it touched, all and distinct."""
    owners, touched = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for _, base, sectors in trace.events:
        lines = base // LINE_BYTES * SECTORS_PER_LINE
        warps = np.arange(len(base)) // (len(base) // count)
        owners.append(np.repeat(warps, sectors.per_warp))
        touched.append(np.repeat(lines, sectors.per_warp) + sectors.offsets)
    owner, sector = np.concatenate(owners), np.concatenate(touched)
    moved = np.bincount(owner, minlength=count)
    span = int(sector.max(initial=0)) + 1
    return moved, np.bincount(np.unique(owner * span + sector) // span, minlength=count)


def _bounding_box(blocks: IntArray) -> BlockBox:
    """The smallest part of the grid that holds some blocks."""
    x, y, z = (range(int(each.min()), int(each.max()) + 1) for each in blocks.T)
    return x, y, z


def _narrowed_region(region: BlockBox, chunk: BlockBox, working: BlockBox) -> BlockBox:
    """A region, no wider than the blocks with work in a chunk that goes from side to side of it."""
    x, y, z = (
        inner if outer == side else side
        for side, outer, inner in zip(region, chunk, working, strict=True)
    )
    return x, y, z


def _enclosing_box(pieces: Sequence[BlockBox]) -> BlockBox:
    """The smallest part of the grid that holds some pieces."""
    x, y, z = (
        range(min(piece[axis].start for piece in pieces), max(piece[axis].stop for piece in pieces))
        for axis in range(3)
    )
    return x, y, z
