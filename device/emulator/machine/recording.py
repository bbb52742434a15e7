"""What lanes touch, one access after the other, for those who want to follow a thread.

A `Chunk` that is given a recorder tells it of every access and of every stretch of instructions
without a branch. Without one it does nothing more than ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.memory import GlobalMemory, Segment

Lanes = NDArray[Any]

_COUNTED_AT_ONCE = 4_000_000  # reads held before they are added up


@dataclass(frozen=True)
class RecordedAccess:
    """One memory instruction, as the followed lanes carried it out.

    Attributes:
        step: Its place in the program.
        space: The state space it touched.
        addresses: Byte addresses in that space, shape (followed lanes,).
        active: Which of these lanes took part.
    """

    step: int
    space: str
    addresses: Lanes
    active: Lanes


@dataclass(frozen=True)
class ExecutedRange:
    """Instructions that ran one after the other, without a branch between them.

    Attributes:
        start: The first one's place in the program.
        stop: The place behind the last one.
        active: Which of the followed lanes ran them.
        accesses: The memory instructions among them, in order; one that no lane's guard let
            through is missing.
    """

    start: int
    stop: int
    active: Lanes
    accesses: tuple[RecordedAccess, ...]


class Recorder:
    """Follows some lanes of a chunk, and counts how often global memory is read by all lanes.

    Attributes:
        stretches: What the followed lanes did, in the order of execution.
    """

    def __init__(self, memory: GlobalMemory, lanes: Lanes | None = None) -> None:
        """Follow the given lanes of a chunk; none where only reads are to be counted."""
        self.stretches: list[ExecutedRange] = []
        self._memory = memory
        self._lanes = np.zeros(0, np.int64) if lanes is None else lanes
        self._pending: list[RecordedAccess] = []
        self._unit = min((each.element_bytes for each in memory.allocations), default=1)
        self._reads: list[Lanes] = []
        self._uncounted = 0
        self._positions, self._times = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def access(
        self, step: int, segment: Segment, addresses: Lanes, size: int, active: Lanes, load: bool
    ) -> None:
        """Take note of one memory instruction.

        Args:
            step: Its place in the program.
            segment: What it touches.
            addresses: Byte address of each lane of the chunk.
            size: Bytes that a lane moves.
            active: Lanes that take part.
            load: Whether it reads.
        """
        if load and segment.name == "global":
            first = addresses[active] // self._unit
            units = np.arange(max(size // self._unit, 1))
            self._reads.append((first[:, None] + units).reshape(-1))
            self._uncounted += self._reads[-1].size
            if self._uncounted > _COUNTED_AT_ONCE:
                self._count()
        followed = active[self._lanes]
        if followed.any():
            self._pending.append(
                RecordedAccess(step, segment.name, addresses[self._lanes], followed)
            )

    def stretch(self, start: int, stop: int, mask: Lanes | None) -> None:
        """Take note of instructions that have run, the accesses among them included."""
        if not len(self._lanes):
            return
        active = np.ones(len(self._lanes), np.bool_) if mask is None else mask[self._lanes]
        if active.any():
            self.stretches.append(ExecutedRange(start, stop, active, tuple(self._pending)))
        self._pending.clear()

    def reads(self, name: str) -> tuple[Lanes, Lanes]:
        """Which elements of an array in global memory were read, and how often each.

        Returns:
            Row-major positions in rising order, and the reads of each.
        """
        self._count()
        found = self._memory.find(name)
        start, units = found.address // self._unit, found.element_bytes // self._unit
        inside = (self._positions >= start) & (self._positions < start + found.size // self._unit)
        places, times = self._positions[inside] - start, self._times[inside]
        whole = places % units == 0
        return places[whole] // units, times[whole]

    def _count(self) -> None:
        """Add up what was read since the last time."""
        places, times = np.unique(
            np.concatenate([*self._reads, self._positions[:0]]), return_counts=True
        )
        self._reads.clear()
        self._uncounted = 0
        both = np.concatenate((self._positions, places))
        self._positions, back = np.unique(both, return_inverse=True)
        self._times = np.bincount(back, np.concatenate((self._times, times))).astype(np.int64)
