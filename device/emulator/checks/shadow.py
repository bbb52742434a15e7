"""What is kept of the accesses to memory, for later ones to be compared with.

An access is one number: its time, and below it its thread.
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.properties import WARP_SIZE

TIME_SHIFT = 32
THREAD = (1 << TIME_SHIFT) - 1
"""The thread of an access."""
COPY = 1 << 62
"""Marks an asynchronous copy on its way: later than any time. What was waited for has no mark."""

_WARP_BITS = WARP_SIZE.bit_length() - 1


class Kept:
    """The accesses to each unit of a state space that later ones are compared with; 0 for none.

    The last one is not enough: its own thread may come back. Nor are two threads of one warp
    where warps have barriers of their own.

    Attributes:
        last: The last one.
    """

    def __init__(self, units: int, warps_apart: bool) -> None:
        """Begin with none; `warps_apart` where warps have barriers of their own."""
        self.last = np.zeros(units, np.int64)
        self._others = [np.zeros(units, np.int64)]  # the last by another thread than `last`
        self._bits = [0]
        if warps_apart:  # and by another warp
            self._others.append(np.zeros(units, np.int64))
            self._bits.append(_WARP_BITS)

    def at(self, units: Lanes) -> list[Lanes]:
        """What is kept of some units."""
        return [self.last[units], *(each[units] for each in self._others)]

    def add(self, units: Lanes, now: Lanes) -> None:
        """Keep one more access to each of some units, of which some may be the same."""
        before = self.last[units]
        self.last[units] = now
        left = self.last[units]
        # Of several threads at one unit the last is kept, and beside it the first.
        lost = np.flatnonzero(left != now)[::-1]
        for others, bits in zip(self._others, self._bits, strict=True):
            other = np.flatnonzero((before != 0) & (((before ^ left) & THREAD) >> bits != 0))
            others[units[other]] = before[other]
            apart = lost[((now[lost] ^ left[lost]) & THREAD) >> bits != 0]
            others[units[apart]] = now[apart]


class Shadow:
    """What was last done to each unit of a state space.

    Attributes:
        written: The last store.
        read: Reads.
        updated: Atomic operations; None before the first.
    """

    def __init__(self, units: int, warps_apart: bool) -> None:
        """Begin with nothing done; `warps_apart` where warps have barriers of their own."""
        self._units, self._warps_apart = units, warps_apart
        self.written = np.zeros(units, np.int64)
        self.read = Kept(units, warps_apart)
        self.updated: Kept | None = None

    def update(self, units: Lanes, now: Lanes) -> None:
        """Keep atomic operations on some units."""
        if self.updated is None:
            self.updated = Kept(self._units, self._warps_apart)
        self.updated.add(units, now)
