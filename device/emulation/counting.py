"""Counts what a launch does: runs its whole grid, or a sample of it, in the time there is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from memlab.device.budget import EmulationTimeoutError
from memlab.device.emulation.block_classes import classify_blocks
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.access_costs import Tally
from memlab.device.emulator.sampling.block_sample import (
    BlockCoordinates,
    GridPartition,
    Stratum,
    WholeGrid,
    draw_strata,
    van_der_corput,
)
from memlab.device.emulator.sampling.data_dependence import depends_on_data
from memlab.device.measurement import Coverage, Progress
from memlab.device.properties import WARP_SIZE

WHOLE_GRID_LANE_INSTRUCTIONS = 600_000_000
"""Launches up to this size run whole: 140 instructions by each of 4 million threads. Measured on
one core of a server of 2021: 200 to 500 million a second, so up to 3 s."""
MAX_EXACT_LANE_INSTRUCTIONS = 1_200_000_000
"""And up to this size where only executing every block counts exactly. These run at 100 to 350
million a second (histograms, sparse products, gathers), so up to about 8 s."""
SAMPLE_LANE_INSTRUCTIONS = 800_000_000
"""Samples of larger blocks are smaller, so that they too take a few seconds."""
_MIN_SAMPLE_CHUNKS = 4  # that a sample whose blocks may differ runs in


@dataclass(frozen=True)
class GridCounts:
    """What running a grid, or a sample of it, counted.

    Attributes:
        tally: Whole-grid counts.
        coverage: How much of the grid they come from.
        division: Into which kinds of blocks the grid was divided.
        parts: What has run.
    """

    tally: Tally
    coverage: Coverage
    division: GridPartition
    parts: Sequence[StratumSample]


@dataclass(frozen=True)
class ExecutedChunk:
    """Blocks that ran at once.

    Attributes:
        places: Where they are among their part's.
        blocks: How many.
        touched: Sectors of global memory that they touched.
        lane_instructions: Of their warps, times a warp's lanes.
    """

    places: slice
    blocks: int
    touched: int
    lane_instructions: int


@dataclass
class StratumSample:
    """Blocks to run, and what has been counted of them.

    Attributes:
        blocks: Their coordinates.
        size: How many blocks of the grid they stand for.
        tally: What those did that have run.
        at_once: How many run at once.
        ran: Each time that some ran.
    """

    blocks: BlockCoordinates
    size: int
    tally: Tally
    blocks_at_once: int
    executed_chunks: list[ExecutedChunk] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many have run."""
        return sum(each.blocks for each in self.executed_chunks)


def sum_global_sectors(tally: Tally) -> int:
    """Sectors of global memory, loaded, stored or changed: of it alone used bytes are counted."""
    return sum(each for each, used in zip(tally.sectors, tally.used, strict=True) if used)


def count_grid(execution: Execution, cost_per_block: float, report: Progress) -> GridCounts:
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
    division = (
        classify_blocks(execution, most) if cost > WHOLE_GRID_LANE_INSTRUCTIONS else GridPartition()
    )
    if cost <= (WHOLE_GRID_LANE_INSTRUCTIONS if division.exact else MAX_EXACT_LANE_INSTRUCTIONS):
        whole = WholeGrid(launch.grid)
        parts = [StratumSample(whole, launch.blocks, Tally.zeros(steps), execution.chunk_blocks)]
    else:
        drawn = draw_strata(launch.grid, execution.seed, most, division)
        parts = [_stratum_sample(execution, each, division.exact) for each in drawn]
    in_time = _run_samples(execution, parts, report)
    total = Tally.zeros(steps)
    for part in parts:
        total.add(part.tally, part.size, part.done)
    done = _executed_blocks(parts)
    estimated = done < launch.blocks and not division.exact
    error = _relative_standard_error(parts) if estimated and in_time else None
    coverage = Coverage(done, launch.blocks, estimated, not in_time, relative_standard_error=error)
    return GridCounts(total, coverage, division, parts)


def _stratum_sample(execution: Execution, stratum: Stratum, exact: bool) -> StratumSample:
    """A sample of blocks to run; where they may differ, in a random order and often enough.

    Then what runs at once is a random part of the sample, and says how far off it may be.
    """
    blocks, at_once = stratum.blocks, execution.chunk_blocks
    if not exact:
        blocks = np.random.default_rng(execution.seed).permutation(blocks)
        at_once = min(at_once, -(-len(blocks) // _MIN_SAMPLE_CHUNKS))
    return StratumSample(blocks, stratum.size, Tally.zeros(len(execution.program.steps)), at_once)


def _relative_standard_error(parts: Sequence[StratumSample]) -> float | None:
    """The standard error of the sectors that the grid touches, over their number.

    What ran at once are clusters of a random sample without repetition (W. G. Cochran, Sampling
    Techniques, 3rd edition, 1977, equations 2.20 and 9A.4).

    Returns:
        None where it is not known: nothing was touched, or by all alike.
    """
    total = variance = 0.0
    for part in parts:
        mean, clusters = (
            sum(each.touched for each in part.executed_chunks) / part.done,
            len(part.executed_chunks),
        )
        total += part.size * mean
        if part.done == part.size:
            continue
        if clusters < 2:
            return None
        squares = sum((each.touched - each.blocks * mean) ** 2 for each in part.executed_chunks)
        of_mean = squares * clusters / (clusters - 1) / part.done**2
        variance += part.size**2 * of_mean * (1 - part.done / part.size)
    return math.sqrt(variance) / total if variance else None


def _run_samples(execution: Execution, parts: Sequence[StratumSample], report: Progress) -> bool:
    """Run the blocks of all parts, and say whether there was time for that.

    Raises:
        OutOfTime: There was not even for some of each.
    """
    wanted, longest_s = sum(len(part.blocks) for part in parts), 0.0
    for part, places in _interleaved_chunks(execution, parts):
        chunk = part.blocks[places]
        begun_s, all_begun = execution.deadline.left(), all(each.done for each in parts)
        if all_begun and begun_s < longest_s:  # it would be cut short, and its outputs with it
            return False
        try:
            ran = execution.run(chunk)
        except EmulationTimeoutError as error:
            if all_begun:
                return False
            raise execution.out_of_time(error, _executed_blocks(parts)) from None
        longest_s = max(longest_s, begun_s - execution.deadline.left())
        part.tally.add(ran)
        cost = sum(ran.warps) * WARP_SIZE
        part.executed_chunks.append(
            ExecutedChunk(places, len(chunk), sum_global_sectors(ran), cost)
        )
        report("emulating", _executed_blocks(parts) / wanted)
    return True


def _interleaved_chunks(
    execution: Execution, parts: Sequence[StratumSample]
) -> Iterator[tuple[StratumSample, slice]]:
    """The chunks of each part in turn.

    So that what has run when the time is up stands for the rest, a part that is the whole grid is
    not run from one end to the other; but where blocks may wait for what others wrote, those
    launched before them must run before them.
    """
    if len(parts) == 1 and not depends_on_data(execution.program):
        (part,) = parts
        step = part.blocks_at_once
        for number in van_der_corput(-(-len(part.blocks) // step)):
            yield part, slice(number * step, (number + 1) * step)
        return
    starts = (range(0, len(part.blocks), part.blocks_at_once) for part in parts)
    for turn in itertools.zip_longest(*starts):
        for part, start in zip(parts, turn, strict=True):
            if start is not None:
                yield part, slice(start, start + part.blocks_at_once)


def _executed_blocks(parts: Sequence[StratumSample]) -> int:
    return sum(part.done for part in parts)
