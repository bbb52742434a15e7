"""Executes blocks again, in launch order, and records the lines of memory that they access.

The cache models then see the addresses that were executed: those that depend on data, too. Where
the whole grid takes long, its first waves are executed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import EmulationTimeoutError
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.codegen.layout import LOCAL_LINES
from memlab.device.emulator.machine.line_trace import ChunkLines, LineTrace
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.models.cache_replay import SECTOR_COUNTS, LineAccesses, fresh_sectors
from memlab.device.emulator.models.caches import CacheGeometry
from memlab.device.emulator.sampling.without_data import without_data, without_products
from memlab.device.properties import WARP_SIZE

REPLAYED_LANE_INSTRUCTIONS = 1_500_000_000
"""The size of what is executed again, on one core: 0.8 s at most on a server of 2022."""
REPLAYED_BY_DATA = 3_000_000_000
"""The same of grids whose addresses depend on data: no block stands for the others."""
REPLAYED_WITHOUT_DATA = 6_000_000_000
"""The same of programs whose data can be left out (`without_data`) and whose blocks are resident at
once, such as those that take tile after tile, none of which stands for the others: 4 s at most."""
ONE_SM_LANE_INSTRUCTIONS = 300_000_000
"""The same of the blocks of one multiprocessor, where no more are executed again."""
_LANE_COST = 100  # instructions per lane that take as long as preparing it (50 ns)
_LINE_COST = 40  # the same of an access to a line (20 ns), whether it is in the sample or not
MOST_ACCESSES = 3_000_000
"""Accesses to lines that are recorded and replayed: 72 MB, 0.6 s. Of more, a sample is taken."""
_FEWEST_LINES = 32  # of a warp's load, that tell how many of them it has read before
_LOCAL_WORD_BYTES = 4
_PLACES = 16  # by which a line's number is multiplied in a place


def record_lines(
    execution: Execution,
    tally: Tally,
    lane_instructions_per_block: float,
    is_affine: bool,
    geometry: CacheGeometry,
) -> LineAccesses | None:
    """Execute the first blocks of a launch again; its outputs are lost.

    Args:
        execution: The launch, which has been counted.
        tally: The counts of the whole grid.
        lane_instructions_per_block: The cost of emulating a block.
        is_affine: Whether no address of the representative block depends on data. Then the grid is
            executed whole or not at all.
        geometry: The blocks that are resident at once.

    Returns:
        The accesses; None where too few blocks can be executed, or blocks wait for others that are
        not.
    """
    lines_per_block = sum(_lines_accessed(execution, tally)) / execution.launch.blocks
    cost = lane_instructions_per_block + _LANE_COST * execution.grid.padded_threads
    cost += _LINE_COST * lines_per_block
    leaves_data_out = without_data(execution.program) is not None
    one_wave = leaves_data_out and execution.launch.blocks <= geometry.wave
    afford = REPLAYED_LANE_INSTRUCTIONS if is_affine else REPLAYED_BY_DATA
    afford = REPLAYED_WITHOUT_DATA if one_wave else afford
    blocks = _blocks(execution, int(afford / cost), geometry)
    if not blocks or (is_affine and blocks < execution.launch.blocks):
        return None
    return _record(execution, execution.blocks[:blocks], blocks * lines_per_block)


def record_lines_of_one_sm(
    execution: Execution,
    tally: Tally,
    lane_instructions_per_block: float,
    geometry: CacheGeometry,
) -> LineAccesses | None:
    """Execute again the blocks that one multiprocessor holds first; the launch's outputs are lost.

    Args:
        execution: As of `record_lines`.
        tally: As there.
        lane_instructions_per_block: As there.
        geometry: The blocks that are resident at once.

    Returns:
        The accesses; None where they take too long, or the blocks wait for others.
    """
    lines_per_block = sum(_lines_accessed(execution, tally)) / execution.launch.blocks
    blocks = execution.blocks[: geometry.wave][:: geometry.multiprocessors]
    cost = lane_instructions_per_block + _LINE_COST * lines_per_block
    if execution.launch.cluster_blocks > 1 or cost * len(blocks) > ONE_SM_LANE_INSTRUCTIONS:
        return None
    return _record(execution, blocks, len(blocks) * lines_per_block)


def hits_of_longest_warp(execution: Execution) -> dict[int, float]:
    """Execute the block of the warp that executes most again: what this warp has read before.

    At last it has the L1 of its multiprocessor for itself. The launch's outputs are lost.

    Returns:
        That share of the sectors of each load, by position in the program, where it reads enough
        lines to tell; none of blocks that wait for others.
    """
    work = execution.work.of_whole_grid()
    if work is None or execution.launch.cluster_blocks > 1:
        return {}
    place, warp = divmod(int(work.argmax()), work.shape[1])
    lines = _record(execution, execution.blocks[place : place + 1], 0)
    if lines is None or lines.warp is None:
        return {}
    own = np.flatnonzero(lines.warp == warp)
    own = own[np.argsort(lines.time[own], kind="stable")]
    places, index = lines.place[own], lines.index[own]
    fresh = SECTOR_COUNTS[fresh_sectors(places, np.arange(len(own)))]
    sectors = SECTOR_COUNTS[places & _PLACES - 1]
    found = {}
    for load in np.unique(index).tolist():
        these, row = index == load, execution.program.steps[load].row
        if row.kind == "load" and not row.bypass_l1 and these.sum() >= _FEWEST_LINES:
            found[load] = float(1 - fresh[these].sum() / sectors[these].sum())
    return found


def _record(
    execution: Execution, blocks: NDArray[np.int64], accesses: float
) -> LineAccesses | None:
    """The lines that some blocks access, about so often in all."""
    factor = 1
    while accesses / factor > MOST_ACCESSES:
        factor *= 2
    execution.reset()
    try:
        chunks = execution.record_chunks(
            list(execution.chunks(blocks)),
            lambda: LineTrace(2 * MOST_ACCESSES, factor),
            _whole,
            without_products(execution.program),
        )
    except (EmulationTimeoutError, KernelFault, _IncompleteError):
        return None
    return _joined(execution, chunks, factor)


class _IncompleteError(Exception):
    """Not all accesses of a chunk were recorded."""


def _whole(trace: LineTrace) -> ChunkLines:
    lines = trace.take()
    if not lines.complete:
        raise _IncompleteError
    return lines


def _blocks(execution: Execution, afford: int, geometry: CacheGeometry) -> int:
    """How many blocks are executed, of those that it can afford: all, some waves, or none.

    The later ones stand for the rest (`further_waves`): they find the L2 as full as these do only
    if there are enough before them.
    """
    blocks, wave = execution.launch.blocks, geometry.wave
    if blocks <= afford:
        return blocks
    waves = afford // wave
    each = execution.launch.cluster_blocks
    return waves * wave // each * each if waves > 1 else 0


def _lines_accessed(execution: Execution, tally: Tally) -> list[int]:
    """How many lines each instruction's warps accessed, of global and local memory."""
    traced = ("global", "local", "generic")
    return [
        lines * (step.row.space in traced and bool(sectors))
        for step, lines, sectors in zip(
            execution.program.steps, tally.wavefronts, tally.sectors, strict=True
        )
    ]


def _joined(execution: Execution, chunks: list[ChunkLines], factor: int) -> LineAccesses:
    """The accesses of all chunks, by their blocks' positions in launch order."""
    warps = execution.grid.padded_threads // WARP_SIZE
    words = -(-execution.program.local_bytes // _LOCAL_WORD_BYTES)
    block, of_warp, time, index, place, ends = [], [], [], [], [], []
    done = 0
    for chunk in chunks:
        accesses, last = chunk.accesses, chunk.last_runs.reshape(-1, warps).max(axis=1)
        of_block, warp = np.divmod(accesses["warp"].astype(np.int64), warps)
        is_local = accesses["place"] >= LOCAL_LINES * _PLACES
        block.append(of_block + done)
        of_warp.append(warp)
        time.append(accesses["run"].astype(np.int64))
        index.append(accesses["index"])
        place.append(accesses["place"] + np.where(is_local, warp * words * _PLACES, 0))
        ends.append(last.astype(np.int64) + 1)
        done += len(last)
    return LineAccesses(
        block=np.concatenate(block),
        time=np.concatenate(time),
        index=np.concatenate(index),
        place=np.concatenate(place),
        ends=np.concatenate(ends),
        factor=factor,
        warp=np.concatenate(of_warp),
    )
