"""Records the accesses of chosen lanes one by one, so that a thread can be followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.address_resolution import MemoryInstruction, ResolvedAddresses
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.observer import ChunkState, Observer

Lanes = NDArray[Any]

_COUNTED_AT_ONCE = 4_000_000  # reads held before they are added up


@dataclass(frozen=True)
class RecordedAccess:
    """One execution of a memory instruction by the followed lanes.

    Attributes:
        step: The instruction's position in the program.
        space: The state space that it accessed.
        addresses: Byte addresses in that space, shape (followed lanes,).
        active: Which of these lanes took part, shape (followed lanes,).
    """

    step: int
    space: str
    addresses: Lanes
    active: Lanes


@dataclass(frozen=True)
class ExecutedRange:
    """Instructions that were executed in sequence, without a branch between them.

    Attributes:
        start: Position of the first one in the program.
        stop: Position behind the last one.
        active: Which of the followed lanes executed them, shape (followed lanes,).
        accesses: The memory instructions among them, in order. One that no lane executed, because
            of its guard, is missing.
    """

    start: int
    stop: int
    active: Lanes
    accesses: tuple[RecordedAccess, ...]


class Recorder(Observer):
    """Follows some lanes of a chunk, and counts the reads of global memory by all lanes.

    Attributes:
        ranges: The ranges that the followed lanes executed, in order.
    """

    def __init__(self, memory: GlobalMemory, lanes: Lanes | None = None) -> None:
        """Follow these lanes of a chunk; None counts reads alone."""
        self.ranges: list[ExecutedRange] = []
        self._memory = memory
        self._lanes = np.zeros(0, np.int64) if lanes is None else lanes
        self._pending: list[RecordedAccess] = []
        self._unit = min((array.element_bytes for array in memory.allocations), default=1)
        self._reads: list[Lanes] = []
        self._uncounted = 0
        self._positions, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def chunk_started(self, chunk: ChunkState) -> None:
        """Keep which lanes are threads."""
        self._alive = chunk.threads.alive

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Lanes | None,
    ) -> None:
        """Record one memory instruction."""
        active = self._alive if mask is None else mask
        touched = np.broadcast_to(addresses.address, active.size) + offset
        space = addresses.segment.name
        if instruction.kind != "store" and space == "global":
            first = touched[active] // self._unit
            units = np.arange(max(instruction.size // self._unit, 1))
            self._reads.append((first[:, None] + units).reshape(-1))
            self._uncounted += self._reads[-1].size
            if self._uncounted > _COUNTED_AT_ONCE:
                self._count()
        followed = active[self._lanes]
        if followed.any():
            self._pending.append(
                RecordedAccess(instruction.index, space, touched[self._lanes], followed)
            )

    def range_executed(self, start: int, stop: int, mask: Lanes | None) -> None:
        """Record the range, with the accesses in it."""
        if not len(self._lanes):
            return
        active = np.ones(len(self._lanes), np.bool_) if mask is None else mask[self._lanes]
        if active.any():
            self.ranges.append(ExecutedRange(start, stop, active, tuple(self._pending)))
        self._pending.clear()

    def reads(self, name: str) -> tuple[Lanes, Lanes]:
        """Count the reads of an array in global memory by element.

        Returns:
            Row-major positions of the elements that were read, ascending, and the reads of each.
        """
        self._count()
        array = self._memory.find(name)
        start, units = array.address // self._unit, array.element_bytes // self._unit
        inside = (self._positions >= start) & (self._positions < start + array.size // self._unit)
        positions, counts = self._positions[inside] - start, self._counts[inside]
        is_first_unit = positions % units == 0
        return positions[is_first_unit] // units, counts[is_first_unit]

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
