"""Divides the work of a block into phases: each fills shared memory and then uses it.

A thread begins a phase with a store to shared memory after a read in the phase before, at most
once between two barriers. Threads that have waited for each other at a barrier go on in the latest
phase of them, and know of each other's reads in it.
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.machine.access_watch import WatchedAccess
from memlab.device.emulator.machine.memory import GlobalMemory, Lanes, Mask
from memlab.device.emulator.machine.recording import Recorder
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.properties import WARP_SIZE


class PhaseRecorder(Recorder):
    """Follows some lanes of one block, and the use of shared memory by all of its threads.

    Attributes:
        phases: For each of `stretches`, the phases of the followed lanes from some of its
            instructions on: its first one, barriers and accesses to shared memory.
    """

    def __init__(self, memory: GlobalMemory, lanes: Lanes, program: Program, threads: int) -> None:
        """Follow the given lanes of a block with so many threads, full warps."""
        super().__init__(memory, lanes)
        self.phases: list[dict[int, Lanes]] = []
        self._followed = lanes
        self._steps = program.steps
        self._barriers = [index for index, step in enumerate(program.steps) if is_barrier(step)]
        self._touched: list[tuple[int, Lanes]] = []
        self._phase = np.zeros(threads, np.int64)
        self._read = np.zeros(threads, np.bool_)  # a thread knows of a read in its phase
        self._began = np.zeros(threads, np.bool_)  # it has begun a phase since its last barrier
        self._waiting = np.zeros(threads, np.bool_)

    @property
    def phase_count(self) -> int:
        """The number of the block's phases so far."""
        return int(self._phase.max())

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Note one memory instruction."""
        super().memory_accessed(access)
        if access.segment.name == "shared":
            self._touched.append((access.instruction.index, access.mask))

    def range_executed(self, start: int, stop: int, mask: Mask) -> None:
        """Note instructions that have run."""
        super().range_executed(start, stop, mask)
        if (self._waiting & mask).any():  # their barrier has opened
            self._synchronize(self._waiting, len(self._waiting))
            self._waiting[:] = False
        barriers = [(index, mask) for index in self._barriers if start <= index < stop]
        phases = {start: self._phase[self._followed]}
        for index, active in sorted([*self._touched, *barriers], key=lambda event: event[0]):
            row = self._steps[index].row
            if row.kind == "barrier":
                self._waiting |= active
            elif is_barrier(self._steps[index]):
                self._synchronize(active, WARP_SIZE)
            else:
                self._use(active, store=row.kind == "store")
            phases[index] = self._phase[self._followed]
        self._touched.clear()
        if len(self.ranges) > len(self.phases):  # followed lanes ran these instructions
            self.phases.append(phases)

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
