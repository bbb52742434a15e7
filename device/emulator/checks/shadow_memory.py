"""What is kept of the accesses to memory, for later ones to be compared with.

An access is one number: its time, and below it its thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.properties import WARP_SIZE

TIME_SHIFT = 32
THREAD_MASK = (1 << TIME_SHIFT) - 1
"""The thread of an access."""
PENDING_COPY_BIT = 1 << 62
"""Marks an asynchronous copy on its way: later than any time. What was waited for has no mark."""

THREAD_ID_SHIFTS = (0,)
"""In what low bits of their numbers threads may differ that count as one: in none."""
THREAD_AND_WARP_ID_SHIFTS = (0, WARP_SIZE.bit_length() - 1)
"""The same where a unit's accesses are also kept for warps, which have barriers of their own."""


class AccessHistory:
    """The accesses to each unit of a state space that later ones are compared with; 0 for none.

    The last one is not enough: its own thread may come back. Nor are two threads of one warp
    where warps have barriers of their own.

    Attributes:
        last: The last one.
    """

    def __init__(self, units: int, apart: Sequence[int]) -> None:
        """Begin with none; `apart` as of `Shadow`."""
        self.last = np.zeros(units, np.int64)
        # The last by another thread than `last`, and by another warp.
        self._others = [(bits, np.zeros(units, np.int64)) for bits in apart]

    @property
    def recorded_accesses(self) -> list[Lanes]:
        """All that is kept: an access to each unit, several times."""
        return [self.last, *(others for _, others in self._others)]

    def add(self, touched: TouchedUnits, time: int) -> None:
        """Keep an instruction's accesses; of several threads at one unit the last and the first."""
        units, now = touched.units, time << TIME_SHIFT | touched.threads
        before = self.last[units]
        self.last[units] = now
        for (bits, others), (at, threads) in zip(self._others, touched.others, strict=True):
            other = np.flatnonzero((before != 0) & (((before ^ now) & THREAD_MASK) >> bits != 0))
            others[units[other]] = before[other]
            others[units[at]] = time << TIME_SHIFT | threads


class ShadowMemory:
    """What was last done to each unit of a state space.

    Attributes:
        written: The last store.
        read: Reads.
        updated: Atomic operations; None before the first.
    """

    def __init__(self, units: int, apart: Sequence[int]) -> None:
        """Begin with nothing done; `apart` is `THREADS_APART`, or `WARPS_APART` too."""
        self._units, self._apart = units, apart
        self.written = np.zeros(units, np.int64)
        self.read = AccessHistory(units, apart)
        self.atomic_updates: AccessHistory | None = None

    def update(self, touched: TouchedUnits, time: int) -> None:
        """Keep an instruction's atomic operations."""
        if self.atomic_updates is None:
            self.atomic_updates = AccessHistory(self._units, self._apart)
        self.atomic_updates.add(touched, time)
