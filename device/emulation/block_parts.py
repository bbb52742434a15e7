"""Runs the blocks of a chunk in parts, on all cores, where the results are those of lockstep.

The blocks of a chunk run in lockstep: all lanes execute an instruction before the next one. So the
results of programs whose blocks affect each other are defined, whatever the number of cores. Most
programs' blocks do not affect each other. Their order does not matter, and small parts run faster,
because their registers stay in a CPU's cache.

Whether blocks affect each other is known when they have run: two of them stored to the same place,
or an array was both loaded from and stored to. Then the launch is executed again, in lockstep.
Programs whose blocks may wait for each other, or whose results depend on when an instruction is
executed, are never run in parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, lru_cache
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Deadline
from memlab.device.emulator.codegen.stretches import reads_clock
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.tally import ChunkCounts
from memlab.device.emulator.program.polling_loops import find_polling_loops
from memlab.device.emulator.program.program import Program
from memlab.device.emulator.sampling.data_dependence import has_global_atomics
from memlab.errors import UsageError

T = TypeVar("T")

PART_LANES = 2048
"""Lanes of a part: the registers of so many stay in a CPU's L2 cache."""

THREADS_VARIABLE = "MEMLAB_THREADS"
"""The environment variable that limits how many threads execute blocks."""
MOST_THREADS = 1024
"""Each has a workspace of some MB while it executes blocks."""


def threads() -> int:
    """How many threads execute blocks: `MEMLAB_THREADS`, or the cores this process may use.

    Raises:
        UsageError: The variable is no number from 1 to `MOST_THREADS`.
    """
    chosen = os.environ.get(THREADS_VARIABLE)
    cores = len(os.sched_getaffinity(0))
    if not chosen:
        return cores
    if not (chosen.isascii() and chosen.isdecimal() and 1 <= int(chosen) <= MOST_THREADS):
        raise UsageError(
            f"{THREADS_VARIABLE} must be a number from 1 to {MOST_THREADS}, got {chosen!r}: set it "
            f"to {cores}, or to nothing for one thread per core"
        )
    return int(chosen)


@lru_cache(maxsize=32)
def can_run_in_parts(program: Program) -> bool:
    """Whether the blocks of a program may run one after the other, if they share no data."""
    rare = any(step.row.kind in ("print", "heap") or reads_clock(step) for step in program.steps)
    return not rare and not has_global_atomics(program) and not find_polling_loops(program)


class ConflictError(Exception):
    """Blocks affect each other, or one of them is at fault: they must run in lockstep."""


@dataclass(frozen=True)
class _Task:
    """What a thread does at once: parts of a chunk.

    Attributes:
        chunk: The chunk's number.
        parts: Their numbers in the chunk.
        parts_before: How many parts the chunks before have.
    """

    chunk: int
    parts: range
    parts_before: int


def _tasks(parts: Sequence[int], workers: int) -> list[_Task]:
    """The tasks of chunks of so many parts.

    A thread takes a whole chunk, whose parts it counts together, but single parts of the last
    chunks, so that all threads end at about the same time.
    """
    tasks, before = [], 0
    for chunk, count in enumerate(parts):
        step = count if chunk < len(parts) - workers else 1
        steps = range(0, count, step)
        tasks += [_Task(chunk, range(first, first + step), before) for first in steps]
        before += count
    return tasks


TakeChunk: TypeAlias = Callable[[NDArray[np.int64], Workspace, tuple[int, int], Deadline], Chunk]


def run_parts(
    chunks: Sequence[NDArray[np.int64]],
    part_blocks: int,
    take_chunk: TakeChunk,
    first_writer: int,
    deadline: Deadline,
) -> list[tuple[int, ChunkCounts]]:
    """Run the blocks of some chunks in parts.

    Args:
        chunks: Coordinates of the blocks of each, shape (blocks, 3).
        part_blocks: Blocks of a part.
        take_chunk: Gives the chunk of some blocks, with its workspace, `writers` and deadline.
        first_writer: The number of the first part as a writer; the others follow it.
        deadline: Stops the parts.

    Returns:
        The counts of some parts of one chunk each, with its number.

    Raises:
        ConflictError: The results may differ from those of the blocks run at once.
        EmulationTimeoutError: The time was up.
    """
    tasks = _tasks([-(-len(blocks) // part_blocks) for blocks in chunks], threads())
    left = iter(tasks)  # what no thread has taken yet

    def run(workspace: Workspace, stop: Deadline) -> list[tuple[int, ChunkCounts]]:
        counted: list[tuple[int, ChunkCounts]] = []
        used: list[Chunk] = []
        last = -1
        try:
            for task in left:
                if task.chunk != last:
                    counted += [(last, chunk.take_counts()) for chunk in used]
                    used, last = [], task.chunk
                for part in task.parts:
                    blocks = chunks[task.chunk][part * part_blocks : (part + 1) * part_blocks]
                    writer = first_writer + task.parts_before + part
                    chunk = take_chunk(blocks, workspace, (writer, first_writer), stop)
                    if chunk not in used:
                        used.append(chunk)
                    chunk.execute()
                    if chunk.has_conflict:
                        raise ConflictError
            return counted + [(last, chunk.take_counts()) for chunk in used]
        except KernelFault as fault:
            raise ConflictError from fault

    return on_all_cores(run, len(tasks), deadline)


def on_all_cores(
    run: Callable[[Workspace, Deadline], list[T]], tasks: int, deadline: Deadline
) -> list[T]:
    """Call a function by each thread; its results, one behind the other.

    Args:
        run: Takes tasks that no other call has taken, until there are none. Its workspace is used
            by no other thread; its deadline comes early where another call has failed.
        tasks: How many tasks there are.
        deadline: Stops the calls.

    Raises:
        EmulationTimeoutError: The time was up; or what `run` raises.
    """
    workspaces, stop = _workspaces(), Deadline(deadline.left())

    def work() -> list[T]:
        workspace = workspaces.get()
        try:
            return run(workspace, stop)
        finally:
            workspaces.put(workspace)

    futures = [_pool().submit(work) for _ in range(min(tasks, threads()))]
    try:
        return [result for future in futures for result in future.result()]
    finally:
        stop.bring_forward()
        for future in futures:
            future.cancel()
        wait(futures)  # what still runs would write to memory that is used again


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), "memlab-blocks")


@cache
def _workspaces() -> SimpleQueue[Workspace]:
    queue: SimpleQueue[Workspace] = SimpleQueue()
    for _ in range(threads()):
        queue.put(Workspace())
    return queue


def _forget_threads() -> None:
    """A forked process has no threads but one, and none of those that the pool waits for."""
    _pool.cache_clear()
    _workspaces.cache_clear()


os.register_at_fork(after_in_child=_forget_threads)
