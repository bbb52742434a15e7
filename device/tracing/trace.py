"""Follows one thread through a launch: the emulator runs its block, a recorder watches.

What the thread did is told by `thread_walk`; how often elements are read, here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Budget, EmulationTimeoutError
from memlab.device.compiler.compile import CompiledKernel
from memlab.device.emulation.address_names import AddressNames
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.access_costs import Tally
from memlab.device.emulator.machine.recording import Recorder
from memlab.device.emulator.program.program import Program
from memlab.device.emulator.sampling import block_sample
from memlab.device.measurement import Progress, ignore_progress
from memlab.device.properties import WARP_SIZE
from memlab.device.tracing.mma_fragments import FragmentTracker, has_matrix_products
from memlab.device.tracing.phases import PhaseRecorder, phase_count
from memlab.device.tracing.records import ArrayUse, Trace
from memlab.device.tracing.thread_walk import scalar_arguments, walk_thread
from memlab.errors import UsageError
from memlab.kernels.launch import Dim3, Launch

SMALL_BLOCK = 16
"""Blocks of up to so many threads are followed whole: a table of more no one reads."""
WHOLE_GRID_LANE_INSTRUCTIONS = 20_000_000
"""Launches up to this size run whole, to count reads over the grid; about a second."""


def trace(
    launch: Launch,
    compiled: CompiledKernel,
    block: Dim3,
    thread: Dim3,
    device: str,
    budget: Budget | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trace:
    """Follow one thread of one block.

    Args:
        launch: What to run.
        compiled: The launch, compiled.
        block: The block's index in the grid, x, y, z.
        thread: The thread's index in the block, x, y, z.
        device: The name of the device that it was compiled for.
        budget: The time and memory that it may take; None takes the defaults.
        seed: Of the random inputs.
        progress: Told what is being done.

    Raises:
        UsageError: The block or the thread is outside the launch, or it needs more memory than is
            allowed.
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        KernelFault: The kernel touched memory that is not its own.
        OutOfTime: The time was up before the thread was at its end.
    """
    _check_index("block", block, launch.grid, "grid", "blocks")
    _check_index("thread", thread, launch.block, "block", "threads")
    report = progress or ignore_progress
    report("preparing inputs", None)
    execution = Execution.of(launch, compiled, seed, budget)
    program = execution.program

    wanted = _linear_index(thread, launch.block)
    multiplies = has_matrix_products(program)
    followed = {wanted: thread}
    if launch.threads_per_block <= SMALL_BLOCK and not multiplies:
        followed = dict(enumerate(_thread_indices(launch.block)))
    # Matrices lie spread over the lanes of a warp.
    first = wanted // WARP_SIZE * WARP_SIZE if multiplies else min(followed)
    lanes = np.arange(first, first + (WARP_SIZE if multiplies else len(followed)))
    recorder = PhaseRecorder(execution.memory, lanes, program, execution.grid.padded_threads)
    report("following the thread", None)
    tally = execution.record(np.array([block], np.int64), recorder)
    names = AddressNames(launch, execution, compiled.architecture)
    arguments = scalar_arguments(launch, program)
    rounds = recorder.rounds()
    threads = {
        lane: walk_thread(
            program,
            recorder.stretches,
            lane - first,
            names,
            index,
            arguments,
            FragmentTracker(names) if multiplies else None,
            rounds,
        )
        for lane, index in followed.items()
    }
    written = {each.name: execution.memory.elements_written(each.name) for each in launch.buffers}
    report("counting reads over the grid", None)
    whole = _count_whole_grid(launch, execution, tally)
    stored, read = (_moved_bytes(program, tally, "shared", kind) for kind in ("store", "load"))
    return Trace(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        device=device,
        grid=launch.grid,
        block=launch.block,
        block_index=block,
        followed=threads[wanted],
        threads=tuple(threads.values()),
        phases=phase_count(rounds),
        arrays=_array_uses(launch, recorder, written, whole and whole[0]),
        shared_reuse=read / stored if stored else None,
        staged_share=_staged_share(program, tally if whole is None else whole[1]),
    )


def _check_index(what: str, index: Dim3, extent: Dim3, of: str, members: str) -> None:
    """Refuse an index outside its extent.

    Raises:
        UsageError: Names the extent, the value and the nearest index that is inside.
    """
    nearest = tuple(min(max(each, 0), size - 1) for each, size in zip(index, extent, strict=True))
    if nearest != index:
        used = 3 if extent[2] > 1 or index[2] else 2
        shown = ", ".join(map(str, index[:used]))
        raise UsageError(
            f"{what} ({shown}) is outside the {of} of {' x '.join(map(str, extent))} {members}: "
            f"use {what} {','.join(map(str, nearest[:used]))}"
        )


def _linear_index(index: Dim3, extent: Dim3) -> int:
    return index[0] + extent[0] * (index[1] + extent[1] * index[2])


def _thread_indices(extent: Dim3) -> list[Dim3]:
    x, y, _ = extent
    return [(each % x, each // x % y, each // (x * y)) for each in range(prod(extent))]


# --- Block and grid ----------------------------------------------------------------------------


def _count_whole_grid(
    launch: Launch, execution: Execution, tally: Tally
) -> tuple[Recorder, Tally] | None:
    """Count what the whole grid does, if it is small enough to be executed whole in time."""
    if sum(tally.warps) * WARP_SIZE * launch.blocks > WHOLE_GRID_LANE_INSTRUCTIONS:
        return None
    recorder = Recorder(execution.memory)
    execution.reset()  # the block has run once already
    try:
        return recorder, execution.record(block_sample.WholeGrid(launch.grid), recorder)
    except EmulationTimeoutError:
        return None


def _array_uses(
    launch: Launch,
    block: Recorder,
    written: Mapping[str, NDArray[np.int64]],
    grid: Recorder | None,
) -> tuple[ArrayUse, ...]:
    return tuple(
        ArrayUse(
            array=each.name,
            shape=each.shape,
            block_reads=_histogram(block.reads(each.name)[1]),
            grid_reads=None if grid is None else _histogram(grid.reads(each.name)[1]),
            block_read=tuple(block.reads(each.name)[0].tolist()),
            block_written=tuple(written[each.name].tolist()),
        )
        for each in launch.buffers
    )


def _histogram(reads: NDArray[np.int64]) -> dict[int, int]:
    times, elements = np.unique(reads, return_counts=True)
    return dict(zip(times.tolist(), elements.tolist(), strict=True))


def _staged_share(program: Program, tally: Tally) -> float | None:
    read = _moved_bytes(program, tally, "global", "load")
    return _moved_bytes(program, tally, "shared", "store") / read if read else None


def _moved_bytes(program: Program, tally: Tally, space: str, kind: str) -> int:
    return sum(
        tally.bytes[index]
        for index, step in enumerate(program.steps)
        if (step.row.space, step.row.kind) == (space, kind)
    )
