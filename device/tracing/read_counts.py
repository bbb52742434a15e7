"""Counts the reads of global memory, element by element."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from memlab.device.emulator.machine.access_watch import WatchedAccess
from memlab.device.emulator.machine.memory import GlobalMemory, Lanes, write_tracking_bytes
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.program.program import Program

_COUNTED_AT_ONCE = 4_000_000  # reads held before they are added up


class ReadCounter(Observer):
    """Counts the reads of global memory, element by element."""

    def __init__(self, memory: GlobalMemory) -> None:
        """Count for the arrays of a launch's global memory."""
        self._memory = memory
        self._unit = write_tracking_bytes(array.element_bytes for array in memory.allocations)
        self._reads: list[Lanes] = []
        self._uncounted = 0
        self._positions, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def watched_instructions(self, program: Program) -> Collection[int]:
        """Those that may read global memory."""
        return [
            index
            for index, step in enumerate(program.steps)
            if step.row.kind in ("load", "atomic", "reduce")
            and step.row.space in ("global", "generic")
        ]

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Note the elements that lanes read."""
        if access.instruction.kind == "store" or access.segment.name != "global":
            return
        rows, size = access.instruction.rows, access.instruction.size
        first = (access.address[access.mask][:, None] + rows) // self._unit
        units = np.arange(max(size // self._unit, 1))
        self._reads.append((first[..., None] + units).reshape(-1))
        self._uncounted += self._reads[-1].size
        if self._uncounted > _COUNTED_AT_ONCE:
            self._count()

    def reads(self, name: str) -> tuple[Lanes, Lanes]:
        """Count the reads of an array in global memory by element.

        Returns:
            Row-major positions of the elements that were read, ascending, and the reads of each;
            of a structure, those of the part that was read most often.
        """
        self._count()
        array = self._memory.find(name)
        start, units = array.address // self._unit, array.element_bytes // self._unit
        inside = (self._positions >= start) & (self._positions < start + array.size // self._unit)
        positions, counts = self._positions[inside] - start, self._counts[inside]
        elements, starts = np.unique(positions // units, return_index=True)
        return elements, np.maximum.reduceat(counts, starts) if starts.size else counts

    def _count(self) -> None:
        """Add up the reads since the last time."""
        positions, counts = np.unique(
            np.concatenate([*self._reads, self._positions[:0]]), return_counts=True
        )
        self._reads.clear()
        self._uncounted = 0
        both = np.concatenate((self._positions, positions))
        self._positions, back = np.unique(both, return_inverse=True)
        self._counts = np.bincount(back, np.concatenate((self._counts, counts))).astype(np.int64)
