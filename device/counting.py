"""Counts what a launch does: runs its whole grid, or a sample of it, in the time there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import OutOfTime
from memlab.device.emulator import caches, sampling
from memlab.device.emulator.counters import Tally, Trace
from memlab.device.emulator.dependence import depends_on_data
from memlab.device.emulator.sampling import Blocks, Division, WholeGrid, spread, strata
from memlab.device.execution import Execution
from memlab.device.kinds import divide
from memlab.device.measurement import Coverage, Progress
from memlab.device.properties import WARP_SIZE

WHOLE_GRID_LANE_INSTRUCTIONS = 600_000_000
"""Launches up to this size run whole: 140 instructions by each of 4 million threads. Measured on
one core of a server of 2021: 200 to 500 million a second, so up to 3 s."""
ESTIMATED_LANE_INSTRUCTIONS = 1_200_000_000
"""And up to this size where only executing every block counts exactly. These run at 100 to 350
million a second (histograms, sparse products, gathers), so up to about 8 s."""
SAMPLE_LANE_INSTRUCTIONS = 800_000_000
"""Samples of larger blocks are smaller, so that they too take a few seconds."""

_OVERHEAD_INSTRUCTIONS = 10  # of each lane: as many take as long as beginning a chunk (0.4 ms)


@dataclass(frozen=True)
class Probe:
    """What a block and its neighbours showed.

    Attributes:
        stream: What they touched.
        path: The instructions that a warp ran.
        lane_instructions_per_block: What emulating a block costs: the instructions of its warps,
            times their lanes, since lanes that are masked off cost the same, and its share of
            what a chunk costs besides.
    """

    stream: caches.Stream
    path: list[tuple[int, int]]
    lane_instructions_per_block: float


@dataclass(frozen=True)
class Counted:
    """What running a grid, or a sample of it, counted.

    Attributes:
        tally: Whole-grid counts.
        coverage: How much of the grid they come from.
    """

    tally: Tally
    coverage: Coverage


@dataclass
class _Part:
    """Blocks to run, and what has been counted of them.

    Attributes:
        blocks: Their coordinates.
        size: How many blocks of the grid they stand for.
        tally: What those did that have run.
        done: How many have run.
    """

    blocks: Blocks
    size: int
    tally: Tally
    done: int = 0


def probe(execution: Execution) -> Probe:
    """Run a block in the middle of the grid and its neighbours, recording all they do.

    The memory is then as it was before.

    Raises:
        KernelFault: As `Execution.run`.
        OutOfTime: The time was up.
    """
    grid, trace = execution.launch.grid, Trace()
    blocks = caches.probe_blocks(grid, sampling.center(grid))
    try:
        tally = execution.run(blocks, trace=trace)
    except OutOfTime as error:
        raise _out_of_time(execution, error, 0) from None
    execution.reset()
    return Probe(
        stream=caches.record(execution.program, trace, blocks),
        path=trace.path,
        lane_instructions_per_block=sum(tally.warps) * WARP_SIZE / len(blocks)
        + _OVERHEAD_INSTRUCTIONS * execution.grid.padded_threads,
    )


def count(execution: Execution, cost_per_block: float, report: Progress) -> Counted:
    """Run the grid, or a sample of it, until it is done or the time is up.

    Args:
        execution: The launch.
        cost_per_block: From the probe.
        report: Told which fraction is over.

    Raises:
        KernelFault: As `Execution.run`.
        OutOfTime: The time was up before every kind of block had run.
    """
    launch, steps = execution.launch, len(execution.program.steps)
    most = SAMPLE_LANE_INSTRUCTIONS / cost_per_block
    cost = cost_per_block * launch.blocks
    division = divide(execution, most) if cost > WHOLE_GRID_LANE_INSTRUCTIONS else Division()
    if cost <= (WHOLE_GRID_LANE_INSTRUCTIONS if division.exact else ESTIMATED_LANE_INSTRUCTIONS):
        parts = [_Part(WholeGrid(launch.grid), launch.blocks, Tally.zeros(steps))]
    else:
        drawn = strata(launch.grid, execution.seed, most, division)
        parts = [_Part(each.blocks, each.size, Tally.zeros(steps)) for each in drawn]
    in_time = _run(execution, parts, report)
    total = Tally.zeros(steps)
    for part in parts:
        total.add(part.tally, part.size, part.done)
    done = _done(parts)
    estimated = done < launch.blocks and not division.exact
    return Counted(total, Coverage(done, launch.blocks, estimated, not in_time))


def _run(execution: Execution, parts: Sequence[_Part], report: Progress) -> bool:
    """Run the blocks of all parts, and say whether there was time for that.

    Raises:
        OutOfTime: There was not even for some of each.
    """
    wanted, longest_s = sum(len(part.blocks) for part in parts), 0.0
    for part, chunk in _in_turns(execution, parts):
        begun_s, all_begun = execution.deadline.left(), all(each.done for each in parts)
        if all_begun and begun_s < longest_s:  # it would be cut short, and its outputs with it
            return False
        try:
            part.tally.add(execution.run(chunk))
        except OutOfTime as error:
            if all_begun:
                return False
            raise _out_of_time(execution, error, _done(parts)) from None
        longest_s = max(longest_s, begun_s - execution.deadline.left())
        part.done += len(chunk)
        report("emulating", _done(parts) / wanted)
    return True


def _in_turns(
    execution: Execution, parts: Sequence[_Part]
) -> Iterator[tuple[_Part, NDArray[np.int64]]]:
    """The chunks of each part in turn.

    So that what has run when the time is up stands for the rest, a part that is the whole grid is
    not run from one end to the other; but where blocks may wait for what others wrote, those
    launched before them must run before them.
    """
    if len(parts) == 1 and not depends_on_data(execution.program):
        (part,), step = parts, execution.chunk_blocks
        for number in spread(-(-len(part.blocks) // step)):
            yield part, part.blocks[number * step : (number + 1) * step]
        return
    for turn in itertools.zip_longest(*(execution.chunks(part.blocks) for part in parts)):
        for part, chunk in zip(parts, turn, strict=True):
            if chunk is not None:
                yield part, chunk


def _done(parts: Sequence[_Part]) -> int:
    return sum(part.done for part in parts)


def _out_of_time(execution: Execution, error: OutOfTime, blocks: int) -> OutOfTime:
    """The error, with how many blocks were done."""
    return execution.deadline.error(
        f"{error.reached} ({blocks} of {execution.launch.blocks} blocks done)"
    )
