"""Follows one thread through a launch: the emulator runs its block while a recorder watches.

`thread_walk` names what the thread does; the reads of whole arrays are counted here.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from memlab.device.budget import Budget, EmulationTimeoutError
from memlab.device.compiler.compile import CompiledKernel
from memlab.device.emulation.address_names import AddressNames
from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import first_of_clusters
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.program import Program
from memlab.device.measurement import Progress, ignore_progress
from memlab.device.properties import WARP_SIZE
from memlab.device.tracing.phases import PhaseRecorder
from memlab.device.tracing.read_counts import ReadCounter
from memlab.device.tracing.records import ArrayUse, Trace
from memlab.device.tracing.thread_walk import scalar_arguments, walk_thread
from memlab.errors import UsageError
from memlab.kernels.launch import Dim3, Launch

SMALL_BLOCK = 16
"""All threads of blocks up to this size are followed; a table of more is too long to read."""
WHOLE_GRID_LANE_INSTRUCTIONS = 20_000_000
"""Grids up to this size are executed whole to count their reads; that takes about a second."""


def trace_launch(
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
        launch: The launch.
        compiled: The compiled kernel of the launch.
        block: The block's index in the grid, x, y, z.
        thread: The thread's index in the block, x, y, z.
        device: The name of the device that the kernel was compiled for.
        budget: The time and memory that the emulator may take; None for the defaults.
        seed: The seed of the random inputs.
        progress: Called with a description of each stage.

    Raises:
        UsageError: The launch has textures or surfaces, the block or the thread is outside the
            launch, or the launch needs more memory
            than is allowed.
        PtxError: The compiled kernel has an instruction that the emulator does not support.
        KernelFault: The kernel accessed memory outside its arrays.
        EmulationTimeoutError: The time was up before the block ended.
    """
    for buffer in launch.buffers:
        if buffer.view is not None:
            raise UsageError(
                f"{buffer.name} is a {buffer.view.kind}, and a trace shows no accesses to it: use "
                "memlab analyze, which counts them by line"
            )
    _check_index("block", block, launch.grid, "grid", "blocks")
    _check_index("thread", thread, launch.block, "block", "threads")
    report = progress or ignore_progress
    report("preparing inputs", None)
    execution = Execution.of(launch, compiled, seed, budget)
    program = execution.program

    def lane(index: Dim3) -> int:
        return int(np.ravel_multi_index(index[::-1], launch.block[::-1]))

    # The whole warp is recorded: its lanes share the matrices that they multiply.
    first = lane(thread) // WARP_SIZE * WARP_SIZE
    warp, lanes = np.arange(first, first + WARP_SIZE), execution.grid.padded_threads
    blocks = first_of_clusters(execution, np.array([block], np.int64))
    block_recorder = PhaseRecorder(execution.memory, warp, program, lanes, len(blocks))
    report("following the thread", None)
    tally = execution.record(blocks, block_recorder)
    names = AddressNames(launch, execution, compiled.architecture)
    arguments = scalar_arguments(launch, program)
    followed = [thread]
    if launch.threads_per_block <= SMALL_BLOCK:
        followed = [(x, y, z) for z, y, x in np.ndindex(launch.block[::-1])]
    threads = {
        index: walk_thread(program, block_recorder, lane(index) - first, index, names, arguments)
        for index in followed
    }
    written = {
        buffer.name: execution.memory.elements_written(buffer.name) for buffer in launch.buffers
    }
    report("counting reads over the grid", None)
    grid_recorder, grid_tally = _run_grid(launch, execution, tally)
    return Trace(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        device=device,
        grid=launch.grid,
        block=launch.block,
        block_index=block,
        followed=threads[thread],
        threads=tuple(threads.values()),
        phases=block_recorder.phase_count,
        arrays=tuple(
            ArrayUse(
                array=buffer.name,
                shape=buffer.shape,
                block_reads=_histogram(block_recorder, buffer.name),
                grid_reads=None
                if grid_recorder is None
                else _histogram(grid_recorder, buffer.name),
                block_read=tuple(block_recorder.reads(buffer.name)[0].tolist()),
                block_written=tuple(written[buffer.name].tolist()),
            )
            for buffer in launch.buffers
        ),
        shared_reuse=_ratio(program, tally, ("shared", "load"), ("shared", "store")),
        staged_share=_ratio(program, grid_tally, ("shared", "store"), ("global", "load")),
        cluster=launch.cluster,
    )


def _check_index(name: str, index: Dim3, extent: Dim3, container: str, members: str) -> None:
    """Refuse an index outside its extent.

    Raises:
        UsageError: Names the extent, the index and the nearest index inside.
    """
    nearest = tuple(min(max(at, 0), size - 1) for at, size in zip(index, extent, strict=True))
    if nearest != index:
        used = 3 if extent[2] > 1 or index[2] else 2
        shown = ", ".join(map(str, index[:used]))
        raise UsageError(
            f"{name} ({shown}) is outside the {container} of {' x '.join(map(str, extent))} "
            f"{members}: give --{name}-index {','.join(map(str, nearest[:used]))}, in Python "
            f"{name}_index"
        )


def _run_grid(
    launch: Launch, execution: Execution, block: Tally
) -> tuple[ReadCounter | None, Tally]:
    """Execute the whole grid if it is small enough.

    Returns:
        The grid's reads and its counts; None and those of the block (of its cluster, if it has
        one) where the grid is too large.
    """
    whole = sum(block.warps) * WARP_SIZE * launch.blocks // launch.cluster_blocks
    if whole > WHOLE_GRID_LANE_INSTRUCTIONS:
        return None, block
    recorder = ReadCounter(execution.memory)
    execution.reset()  # the block has changed the memory
    try:
        return recorder, execution.record(execution.blocks, recorder)
    except EmulationTimeoutError:
        return None, block


def _histogram(recorder: ReadCounter, array: str) -> dict[int, int]:
    """The number of an array's elements by how often they are read."""
    times, elements = np.unique(recorder.reads(array)[1], return_counts=True)
    return dict(zip(times.tolist(), elements.tolist(), strict=True))


def _ratio(
    program: Program, tally: Tally, part: tuple[str, str], whole: tuple[str, str]
) -> float | None:
    """The bytes that one kind of access moves per byte of another; each is a space and a kind."""
    moved: Counter[tuple[str, str]] = Counter()
    for step, count in zip(program.steps, tally.bytes, strict=True):
        moved[step.row.space, step.row.kind] += count
    return moved[part] / moved[whole] if moved[whole] else None
