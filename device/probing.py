"""A block that shows what the blocks of a grid do to memory, recorded with its neighbours.

The one in the middle of the grid is recorded first, and says what a block costs. Where the grid's
counts tell that the others do not do as it does, for it may have nothing to do at all, a block of
the grid's pieces is looked for that does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memlab.device.budget import OutOfTime
from memlab.device.emulator import streams
from memlab.device.emulator.counters import Trace
from memlab.device.emulator.reach import Box
from memlab.device.emulator.sampling import Division
from memlab.device.emulator.streams import Ints, Stream
from memlab.device.execution import Execution
from memlab.device.kinds import middle
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import Dim3

_OVERHEAD_INSTRUCTIONS = 10  # of each lane: as many take as long as beginning a chunk (0.4 ms)
_TYPICAL = 0.9, 1.1
"""What all blocks do, over as many of the probe's, for the probe to stand for them."""
_PIECES = 96  # of a grid, where it is not known which blocks do the same
_MOST_PIECES = 128  # that are tried


@dataclass(frozen=True)
class Probe:
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

    stream: Stream
    path: list[tuple[int, int]]
    idle: list[tuple[int, int]]
    lane_instructions_per_block: float
    region: Box


def probe(execution: Execution, piece: Box | None = None, region: Box | None = None) -> Probe:
    """Run the block in the middle of a piece of the grid and its neighbours, recording all.

    The memory is then as it was before.

    Args:
        execution: The launch.
        piece: None for the whole grid.
        region: The blocks among which all lie that touch memory; None for the whole grid.

    Raises:
        KernelFault: As `Execution.run`.
        OutOfTime: The time was up.
    """
    grid, trace = execution.launch.grid, Trace(execution.grid.padded_threads)
    whole = (range(grid[0]), range(grid[1]), range(grid[2]))
    blocks = streams.probe_blocks(grid, middle(piece or whole), piece)
    try:
        tally = execution.run(blocks, trace=trace)
    except OutOfTime as error:
        raise execution.out_of_time(error, 0) from None
    execution.reset()
    path = trace.path()
    return Probe(
        stream=streams.record(execution.program, trace, blocks, execution.memory.allocations),
        path=path,
        idle=path,
        lane_instructions_per_block=sum(tally.warps) * WARP_SIZE / len(blocks)
        + _OVERHEAD_INSTRUCTIONS * execution.grid.padded_threads,
        region=region or whole,
    )


def typical(execution: Execution, first: Probe, sectors: int, division: Division) -> Probe:
    """Find a block that stands for the others, if the first that was probed does not.

    What the launch wrote is forgotten then.

    Args:
        execution: The launch, which has been counted.
        first: What the grid's middle showed.
        sectors: What the whole grid touched of global memory.
        division: The grid's kinds of blocks, as far as they are known.

    Returns:
        The probe of a block of the middle kind: half of what the grid moves is moved by blocks
        that do no more than it. The first one where that is typical, where nothing else was
        found, or where there is no time.
    """
    least, most = _TYPICAL
    if not sectors or least <= first.stream.blocks_like(sectors) / execution.launch.blocks <= most:
        return first
    execution.reset()
    pieces = _pieces(execution.launch.grid, division)
    try:
        each = _sectors(execution, np.array([middle(piece) for piece in pieces]))
        if not each.any():
            return first
        execution.reset()
        region = _around([piece for piece, moved in zip(pieces, each, strict=True) if moved])
        work = each * np.array([math.prod(map(len, piece)) for piece in pieces])
        rising = np.argsort(each, kind="stable")
        half = int(np.searchsorted(np.cumsum(work[rising]), work.sum() / 2))
        found = probe(execution, pieces[int(rising[half])], region)
        if each.all():
            return found
        trace = Trace()
        execution.run(np.array([middle(pieces[int(each.argmin())])]), trace=trace)
        return replace(found, idle=trace.path())
    except OutOfTime:
        return first


def _pieces(grid: Dim3, division: Division) -> list[Box]:
    """The largest pieces of a grid whose blocks do the same; even ones where none are known."""
    if not division.exact:
        axes = sum(extent > 1 for extent in grid)
        count = max(round(_PIECES ** (1 / max(axes, 1))), 1)
        x, y, z = (frozenset(extent * n // count for n in range(count)) for extent in grid)
        division = Division((x, y, z))
    parts = replace(division, periods=(1, 1, 1)).pieces(grid)
    pieces: list[Box] = [(x, y, z) for x, y, z in itertools.product(*parts)]
    pieces.sort(key=lambda piece: -math.prod(map(len, piece)))
    return pieces[:_MOST_PIECES]


def _sectors(execution: Execution, blocks: Ints) -> Ints:
    """How many sectors of global memory each of some blocks touches."""
    found = []
    for chunk in execution.chunks(blocks):
        trace, moved = Trace(), np.zeros(len(chunk), np.int64)
        execution.run(chunk, trace=trace)
        for _, _, sectors in trace.events:
            moved += sectors.per_warp.reshape(len(chunk), -1).sum(axis=1)
        found.append(moved)
    return np.concatenate(found)


def _around(pieces: Sequence[Box]) -> Box:
    """The smallest part of the grid that holds some pieces."""
    x, y, z = (
        range(min(piece[axis].start for piece in pieces), max(piece[axis].stop for piece in pieces))
        for axis in range(3)
    )
    return x, y, z
