"""Counts a launch: executes its whole grid, or a sample of the grid that it scales.

`count_grid` decides how many blocks are executed, by the estimated cost of the grid in lane
instructions (instructions of a warp, times its 32 lanes):

1. A small grid is executed whole, and so is one whose blocks wait for each other at a barrier. Its
   counters are exact.
2. The blocks of a larger grid are partitioned into classes that do the same (`block_classes.py`).
   If that succeeds, some blocks of each class are executed, and their counters are multiplied by
   (blocks of the class / blocks executed). The counters are exact.
   Of a grid of few long blocks, with bulk copies or products of warpgroups, all blocks are counted
   without their data instead, where data decides nothing (`sampling/without_data.py`), and a
   sample is executed. Blocks of a persistent kernel, which take tile after tile, form no classes.
3. Otherwise only executing every block counts exactly. This is done up to twice the size of step 1.
4. A still larger grid is estimated. It is cut into strata (first, middle and last blocks along
   each axis), a larger random sample of each is executed and scaled, and the standard error is
   estimated from the spread between chunks.

A stratum is a set of blocks that is sampled by itself: a block class, or a part of the grid. Strata
with the same scale factor are merged into one `StratumSample`, whose blocks are executed in chunks
of as many blocks as the emulator holds at once. The chunks of all samples take turns, so that every
stratum has a share of the work done if time runs out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from memlab.device.budget import Deadline, EmulationTimeoutError
from memlab.device.emulation.block_classes import classify_blocks
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.tally import ChunkCounts, Tally
from memlab.device.emulator.sampling.block_sample import (
    BlockCoordinates,
    GridPartition,
    Stratum,
    draw_strata,
    van_der_corput,
)
from memlab.device.emulator.sampling.data_dependence import (
    atomics_decide_paths,
    depends_on_data,
)
from memlab.device.emulator.sampling.without_data import without_data
from memlab.device.measurement import Coverage, Progress

WHOLE_GRID_LANE_INSTRUCTIONS = 5_500_000_000
"""Grids up to this size are executed whole: 1,300 instructions by each of 4 million threads. One
core of a server of 2022 executes 1.5 to 18 billion per second (measured: tiled products of width
1024, and a loop of FMAs), so two cores take some 2 s at most."""
MAX_EXACT_LANE_INSTRUCTIONS = 8_000_000_000
"""Grids without exact block classes are executed whole up to this size."""
FEW_BLOCKS = 1024
"""A grid of so many blocks is counted whole without its data, if it can be, and a sample of its
blocks executed: an estimate would draw as many blocks. Persistent kernels have some hundreds, each
of which does something else."""
_COUNTING_SHARE = 0.75  # of the time that is left: the rest is for the sample
_LANE_COST_INSTRUCTIONS = 300  # that a core executes in the time of preparing a lane (0.2 us)
SAMPLE_LANE_INSTRUCTIONS = 800_000_000
"""The size of a sample: the more a block costs, the fewer blocks are drawn."""
_MOST_BETWEEN_LOOKS_S = 0.5  # that chunks run at once: what they did is lost when the time is up
_MIN_SAMPLE_CHUNKS = 4  # chunks of a sample whose blocks may differ, to estimate its error


@dataclass(frozen=True)
class GridCounts:
    """The counters of a grid, and the samples they come from.

    Attributes:
        tally: The counters of the whole grid, per instruction.
        coverage: The share of the grid that was executed.
        partition: The partition of the grid into block classes.
        samples: The executed blocks: one sample per scale factor.
    """

    tally: Tally
    coverage: Coverage
    partition: GridPartition
    samples: Sequence[StratumSample]


@dataclass(frozen=True)
class ExecutedChunk:
    """Blocks that were executed at once.

    Attributes:
        positions: Their positions among the blocks of the sample.
        blocks: The number of blocks.
        sectors: The sectors of global memory that they touched.
        lane_instructions: The instructions of their warps, times 32.
    """

    positions: slice
    blocks: int
    sectors: int
    lane_instructions: int


@dataclass
class StratumSample:
    """Blocks to execute, and the counters of those that were executed.

    Attributes:
        blocks: The coordinates of the blocks to execute, shape (blocks, 3).
        size: The number of blocks of the grid that the sample stands for.
        tally: The counters of the blocks executed so far, not scaled.
        blocks_at_once: The number of blocks in a chunk.
        executed_chunks: The chunks executed so far.
    """

    blocks: BlockCoordinates
    size: int
    tally: Tally
    blocks_at_once: int
    executed_chunks: list[ExecutedChunk] = field(default_factory=list)

    @property
    def done(self) -> int:
        """The number of blocks executed so far."""
        return sum(chunk.blocks for chunk in self.executed_chunks)

    def add(self, executed: Sequence[tuple[slice, ChunkCounts]]) -> None:
        """Add the counts of chunks, with their positions among the blocks of the sample."""
        if executed:
            self.tally.add(ChunkCounts.sum([counts for _, counts in executed]).tally())
        for positions, counts in executed:
            blocks, cost = len(self.blocks[positions]), counts.lane_instructions
            chunk = ExecutedChunk(positions, blocks, counts.global_sectors, cost)
            self.executed_chunks.append(chunk)


def sum_global_sectors(tally: Tally) -> int:
    """Sectors of global memory: `Tally.used` is 0 for instructions that access no global memory."""
    return sum(sectors for sectors, used in zip(tally.sectors, tally.used, strict=True) if used)


def count_grid(
    execution: Execution,
    cost_per_block: float | None,
    report: Progress,
    resident_blocks: int = 1,
) -> GridCounts:
    """Execute a grid, or a sample of it, until it is done or the time is up.

    Args:
        execution: The launch.
        cost_per_block: Lane instructions per block, from the representative block; None where the
            grid is executed whole whatever it costs.
        report: Called with the share of the blocks that is done.
        resident_blocks: The blocks that the device holds at once.

    Raises:
        KernelFault: As `Execution.run`.
        EmulationTimeoutError: The time was up before a block of every stratum was executed.
    """
    launch = execution.launch
    most_blocks, cost, partition = float(launch.blocks), 0.0, GridPartition()
    if cost_per_block is not None:
        _run_resident_blocks_at_once(execution, cost_per_block, resident_blocks)
        most_blocks = SAMPLE_LANE_INSTRUCTIONS / cost_per_block
        preparation = _LANE_COST_INSTRUCTIONS * execution.grid.padded_threads
        cost = (cost_per_block + preparation) * launch.blocks
    if cost > WHOLE_GRID_LANE_INSTRUCTIONS and launch.blocks <= FEW_BLOCKS:
        counted = _count_without_data(execution, report)
        if counted is not None:
            return _with_sample(execution, counted, most_blocks, report)
    if cost > WHOLE_GRID_LANE_INSTRUCTIONS:
        partition = classify_blocks(execution, most_blocks)
    if cost <= (WHOLE_GRID_LANE_INSTRUCTIONS if partition.exact else MAX_EXACT_LANE_INSTRUCTIONS):
        samples = [
            StratumSample(
                execution.blocks, launch.blocks, Tally.of(execution.program), execution.chunk_blocks
            )
        ]
    else:
        strata = draw_strata(launch.grid, execution.seed, most_blocks, partition, launch.cluster)
        samples = [_stratum_sample(execution, stratum, partition.exact) for stratum in strata]
    in_time = _run_samples(execution, samples, report)
    total = Tally.of(execution.program)
    for sample in samples:
        total.add(sample.tally, sample.size, sample.done)
    done = _executed_blocks(samples)
    estimated = done < launch.blocks and not partition.exact
    error = _relative_standard_error(samples) if estimated and in_time else None
    coverage = Coverage(done, launch.blocks, estimated, not in_time, relative_standard_error=error)
    return GridCounts(total, coverage, partition, samples)


def _run_resident_blocks_at_once(
    execution: Execution, cost_per_block: float, resident_blocks: int
) -> None:
    """Run as many blocks at once as the device does, where results of atomics decide paths.

    How often a compare-and-swap fails, for instance, depends on how many threads try at the same
    time. What a block executes may grow with their number, as where all wait for one lock: it is
    taken to grow linearly from one block through a chunk. Where the grid would cost too much to be
    executed whole, chunks stay as they are.
    """
    usual, most = execution.chunk_blocks, min(resident_blocks, execution.launch.blocks)
    if most <= usual or not atomics_decide_paths(execution.program):
        return
    try:
        counts = execution.run(execution.blocks[:usual])
    except EmulationTimeoutError:
        return
    finally:
        execution.reset()
    cost = counts.lane_instructions / usual
    growth = max(cost - cost_per_block, 0.0) / usual
    if (cost + growth * most) * execution.launch.blocks <= WHOLE_GRID_LANE_INSTRUCTIONS:
        execution.run_at_once(most)


def _count_without_data(execution: Execution, report: Progress) -> StratumSample | None:
    """Count all blocks of a grid without their data, and reset the memory.

    Returns:
        None where data decides, or little of it can be left out (`without_data`), or it takes long.
    """
    program, blocks = without_data(execution.program), execution.blocks
    if program is None:
        return None
    step = execution.chunk_blocks
    counted = StratumSample(blocks, len(blocks), Tally.of(program), step)
    deadline = Deadline(execution.deadline.left() * _COUNTING_SHARE)
    try:
        for start in range(0, len(blocks), step):
            positions = slice(start, start + step)
            counts = execution.run(blocks[positions], deadline=deadline, program=program)
            counted.add([(positions, counts)])
            report("counting", counted.done / len(blocks))
    except EmulationTimeoutError:
        return None
    finally:
        execution.reset()
    return counted


def _with_sample(
    execution: Execution, counted: StratumSample, most_blocks: float, report: Progress
) -> GridCounts:
    """The counts of all blocks; a sample of these is executed with its data, to be verified."""
    launch, partition = execution.launch, GridPartition()
    strata = draw_strata(launch.grid, execution.seed, most_blocks, partition, launch.cluster)
    samples = [_stratum_sample(execution, stratum, exact=True) for stratum in strata]
    try:
        in_time = _run_samples(execution, samples, report)
    except EmulationTimeoutError:
        in_time = False
    coverage = Coverage(_executed_blocks(samples), launch.blocks, timed_out=not in_time)
    return GridCounts(counted.tally, coverage, partition, [counted])


def _stratum_sample(execution: Execution, stratum: Stratum, exact: bool) -> StratumSample:
    """Prepare the sample of a stratum.

    If its blocks may differ, their clusters are shuffled and divided into several chunks. Every
    chunk is then a random part of the sample, and the spread between chunks gives the standard
    error.
    """
    blocks, blocks_at_once = stratum.blocks, execution.chunk_blocks
    if not exact:
        clusters = blocks.reshape(-1, execution.launch.cluster_blocks, 3)
        blocks = np.random.default_rng(execution.seed).permutation(clusters).reshape(-1, 3)
        at_most = -(-len(clusters) // _MIN_SAMPLE_CHUNKS) * clusters.shape[1]
        blocks_at_once = min(blocks_at_once, at_most)
    tally = Tally.of(execution.program)
    return StratumSample(blocks, stratum.size, tally, blocks_at_once)


def _relative_standard_error(samples: Sequence[StratumSample]) -> float | None:
    """The standard error of the grid's sectors, divided by the estimated sectors.

    The chunks are clusters of a random sample without replacement (W. G. Cochran, Sampling
    Techniques, 3rd edition, 1977, equations 2.20 and 9A.4).

    Returns:
        None if it is not known: no sector was touched, all chunks touched the same number per
        block, or a sample has only one chunk.
    """
    total = variance = 0.0
    for sample in samples:
        chunks = sample.executed_chunks
        mean = sum(chunk.sectors for chunk in chunks) / sample.done
        total += sample.size * mean
        if sample.done == sample.size:
            continue
        if len(chunks) < 2:
            return None
        squares = sum((chunk.sectors - chunk.blocks * mean) ** 2 for chunk in chunks)
        variance_of_mean = squares * len(chunks) / (len(chunks) - 1) / sample.done**2
        variance += sample.size**2 * variance_of_mean * (1 - sample.done / sample.size)
    return math.sqrt(variance) / total if variance else None


def _run_samples(execution: Execution, samples: Sequence[StratumSample], report: Progress) -> bool:
    """Execute the blocks of all samples; False if the time was up before the end.

    Raises:
        EmulationTimeoutError: The time was up before a chunk of every sample was executed.
    """
    wanted, longest_s = sum(len(sample.blocks) for sample in samples), 0.0
    pending = _interleaved_chunks(execution, samples)
    at_once = execution.chunks_to_begin_with
    while chunks := list(itertools.islice(pending, at_once)):
        left_s, all_begun = execution.deadline.left(), all(sample.done for sample in samples)
        # A chunk that is cut short leaves outputs that cannot be verified.
        if all_begun and left_s < longest_s:
            return False
        try:
            counts = execution.run_chunks([sample.blocks[place] for sample, place in chunks])
        except EmulationTimeoutError as error:
            if all_begun:
                return False
            raise execution.out_of_time(error, _executed_blocks(samples)) from None
        took_s = left_s - execution.deadline.left()
        longest_s = max(longest_s, took_s)
        counted = list(zip(chunks, counts, strict=True))
        for sample in samples:
            sample.add([(place, of_chunk) for (of, place), of_chunk in counted if of is sample])
        report("emulating", _executed_blocks(samples) / wanted)
        if all(sample.done for sample in samples):
            in_time = int(_MOST_BETWEEN_LOOKS_S * len(chunks) / max(took_s, 1e-6))
            at_once = max(1, min(execution.chunks_at_once, in_time))
    return True


def _interleaved_chunks(
    execution: Execution, samples: Sequence[StratumSample]
) -> Iterator[tuple[StratumSample, slice]]:
    """The chunks of all samples, in turns, as positions among the blocks of a sample.

    A whole grid is executed in van der Corput order, not from end to end, so that the chunks
    executed when the time is up are spread over the grid. If the program depends on data, a block
    may wait for data of an earlier one, so blocks are executed in launch order.
    """
    if len(samples) == 1 and not depends_on_data(execution.program):
        (sample,) = samples
        step = sample.blocks_at_once
        for number in van_der_corput(-(-len(sample.blocks) // step)):
            yield sample, slice(number * step, (number + 1) * step)
        return
    starts = (range(0, len(sample.blocks), sample.blocks_at_once) for sample in samples)
    for turn in itertools.zip_longest(*starts):
        for sample, start in zip(samples, turn, strict=True):
            if start is not None:
                yield sample, slice(start, start + sample.blocks_at_once)


def _executed_blocks(samples: Sequence[StratumSample]) -> int:
    return sum(sample.done for sample in samples)
