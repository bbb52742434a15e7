"""What lanes touch, one access after the other, for those who want to follow a thread.

A `Chunk` that is given a recorder tells it of every access and of every stretch of instructions
without a branch. Without one it does nothing more than ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.memory import GlobalMemory, Segment

Lanes = NDArray[Any]

UNIT_BYTES = 2  # the smallest element of an array argument


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
class Stretch:
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
        self.stretches: list[Stretch] = []
        self._memory = memory
        self._lanes = np.zeros(0, np.int64) if lanes is None else lanes
        self._pending: list[RecordedAccess] = []
        self._reads = np.zeros(-(-memory.size // UNIT_BYTES), np.uint32)

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
            first = (addresses[active] - segment.origin) // UNIT_BYTES
            for unit in range(max(size // UNIT_BYTES, 1)):
                np.add.at(self._reads, first + unit, 1)
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
            self.stretches.append(Stretch(start, stop, active, tuple(self._pending)))
        self._pending.clear()

    def reads(self, name: str) -> NDArray[np.uint32]:
        """How often each element of an array in global memory was read, flat."""
        found = self._memory.find(name)
        start = (found.address - self._memory.origin) // UNIT_BYTES
        units = found.element_bytes // UNIT_BYTES
        return self._reads[start : start + found.size // UNIT_BYTES][::units]
