"""Divides the work of a block into phases: each fills shared memory and then uses it.

A thread begins a phase with a store to shared memory after a read in the phase before, at most
once between two barriers. Threads that have waited for each other at a barrier go on in the latest
phase of them, and know of each other's reads in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memlab.device.emulator.machine.access_watch import WatchedAccess
from memlab.device.emulator.machine.memory import GlobalMemory, Lanes, Mask
from memlab.device.emulator.program.program import ACCESS_KINDS, DecodedInstruction, Program
from memlab.device.properties import WARP_SIZE
from memlab.device.tracing.read_counts import ReadCounter

OWN = -1


@dataclass(frozen=True)
class RecordedAccess:
    """One execution of a memory instruction by the followed lanes.

    Attributes:
        step: The instruction's position in the program.
        space: The state space that it accessed.
        addresses: Byte addresses in that space, shape (followed lanes,).
        active: Which of these lanes took part, shape (followed lanes,).
        size: Bytes that each of them accessed.
        ranks: In shared memory of a cluster, the rank of the block whose memory each accessed, and
            `OWN` of the own one; None elsewhere.
    """

    step: int
    space: str
    addresses: Lanes
    active: Lanes
    size: int
    ranks: Lanes | None = None


@dataclass(frozen=True)
class ExecutedRange:
    """Instructions that were executed in sequence, without a branch between them.

    Attributes:
        start: Position of the first one in the program.
        stop: Position behind the last one.
        active: Which of the followed lanes executed them, shape (followed lanes,).
        accesses: The memory instructions among them, in order. One that no lane executed, because
            of its guard, is missing.
        phases: The phases of the followed lanes from some of its instructions on: its first one,
            barriers and accesses to shared memory.
    """

    start: int
    stop: int
    active: Lanes
    accesses: tuple[RecordedAccess, ...]
    phases: Mapping[int, Lanes]


class PhaseRecorder(ReadCounter):
    """Follows some lanes of one block, and the use of shared memory by all of its threads.

    Where blocks form clusters, the threads of the whole cluster are watched, since they wait for
    each other and use each other's shared memory.

    Attributes:
        ranges: The ranges that the followed lanes executed, in order.
    """

    observes_flow: ClassVar[bool] = True

    def __init__(
        self, memory: GlobalMemory, lanes: Lanes, program: Program, threads: int, blocks: int = 1
    ) -> None:
        """Follow some lanes of the first block that runs.

        Args:
            memory: The launch's global memory.
            lanes: The lanes.
            program: The program.
            threads: Threads of a block, full warps.
            blocks: Blocks that run: those of a cluster.
        """
        super().__init__(memory)
        self._block_threads, self._all_threads = threads, threads * blocks
        self.ranges: list[ExecutedRange] = []
        self._followed = lanes
        self._steps = program.steps
        self._barriers = [index for index, step in enumerate(program.steps) if is_barrier(step)]
        self._pending: list[RecordedAccess] = []
        self._touched: list[tuple[int, Lanes]] = []
        self._phase = np.zeros(self._all_threads, np.int64)
        # A thread knows of a read in its phase; it has begun a phase since its last barrier.
        self._read = np.zeros(self._all_threads, np.bool_)
        self._began = np.zeros(self._all_threads, np.bool_)
        # Those that wait, by how many neighbours wait for each other.
        sizes = {threads, self._all_threads}
        self._waiting = {size: np.zeros(self._all_threads, np.bool_) for size in sizes}

    @property
    def phase_count(self) -> int:
        """The number of the block's phases so far."""
        return int(self._phase[: self._block_threads].max())

    def watched_instructions(self, program: Program) -> Collection[int]:
        """All that access memory."""
        return [n for n, step in enumerate(program.steps) if step.row.kind in ACCESS_KINDS]

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Note one memory instruction."""
        super().memory_accessed(access)
        index, space = access.instruction.index, access.segment.name
        followed = access.mask[self._followed]
        if followed.any():
            addresses = access.address[self._followed]
            size = access.instruction.size
            for row in access.instruction.rows:
                at = addresses + row
                ranks = self._ranks(access)
                self._pending.append(RecordedAccess(index, space, at, followed, size, ranks))
        if space == "shared":
            self._touched.append((index, access.mask))

    def range_executed(self, start: int, stop: int, mask: Mask) -> None:
        """Note instructions that have run."""
        for size, waiting in self._waiting.items():
            gone_on = (waiting & mask).reshape(-1, size).any(axis=1)  # their barrier has opened
            if gone_on.any():
                opened = waiting & np.repeat(gone_on, size)
                self._synchronize(opened, size)
                waiting &= ~opened
        barriers = [(index, mask) for index in self._barriers if start <= index < stop]
        phases = {start: self._phase[self._followed]}
        for index, active in sorted([*self._touched, *barriers], key=lambda event: event[0]):
            row = self._steps[index].row
            if row.kind == "barrier":
                whole = row.opcode.startswith("barrier.cluster")
                self._waiting[self._all_threads if whole else self._block_threads] |= active
            elif is_barrier(self._steps[index]):
                self._synchronize(active, WARP_SIZE)
            else:
                self._use(active, store=row.kind == "store")
            phases[index] = self._phase[self._followed]
        followed = mask[self._followed]
        if followed.any():
            accesses = tuple(self._pending)
            self.ranges.append(ExecutedRange(start, stop, followed, accesses, phases))
        self._pending.clear()
        self._touched.clear()

    def _ranks(self, access: WatchedAccess) -> Lanes | None:
        """The blocks of a cluster whose shared memory the followed lanes access."""
        if access.ranks is None:
            return None
        own = access.base == access.segment.lane_base
        return np.where(own, OWN, access.ranks)[self._followed]

    def _use(self, lanes: Lanes, *, store: bool) -> None:
        """Note an access of some lanes to shared memory."""
        if store:
            begins = lanes & self._read & ~self._began
            self._phase += begins
            self._read &= ~begins
            self._began |= begins
        else:
            self._read |= lanes
        self._phase[lanes] = np.maximum(self._phase[lanes], 1)

    def _synchronize(self, lanes: Lanes, size: int) -> None:
        """Bring lanes, in groups of `size` neighbours, to the latest phase of their group."""
        phases = np.where(lanes, self._phase, -1).reshape(-1, size)
        latest = phases.max(axis=1, keepdims=True)
        read = (self._read.reshape(-1, size) & (phases == latest)).any(axis=1)
        self._phase[lanes] = np.repeat(latest, size)[lanes]
        self._read[lanes] = np.repeat(read, size)[lanes]
        self._began[lanes] = False


def is_barrier(step: DecodedInstruction) -> bool:
    """Whether threads wait for others at an instruction."""
    return step.row.kind == "barrier" or step.row.opcode == "bar.warp.sync"
