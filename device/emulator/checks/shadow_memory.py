"""Shadow memory: the earlier accesses to each unit, for later ones to be compared with.

An entry is one number: the time of the access in its upper bits, the thread in its lower 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.emulator.codegen.check_layout import THREAD_MASK, TIME_SHIFT, WARP_BITS

THREAD_ID_SHIFTS = (0,)
"""Numbers of low bits: threads whose numbers differ in these bits only count as one. Here, in no
bits: an entry is kept for two different threads."""
THREAD_AND_WARP_ID_SHIFTS = (0, WARP_BITS)
"""The same, with another entry for two different warps, for programs with barriers of a warp."""


class AccessHistory:
    """The accesses to each unit of a state space that later ones are compared with; 0 for none.

    The last access is not enough, since its own thread may access the unit again. Nor are two
    threads of one warp, if warps have barriers of their own.

    Attributes:
        last: The last access to each unit.
    """

    def __init__(self, units: int, id_shifts: Sequence[int]) -> None:
        """Begin without accesses; `id_shifts` as in `ShadowMemory`."""
        self.last = np.zeros(units, np.int64)
        # The last access by another thread than that of `last`, and by another warp.
        self._others = [(bits, np.zeros(units, np.int64)) for bits in id_shifts]

    @property
    def recorded_accesses(self) -> list[Lanes]:
        """The entries of all units, several arrays of shape (units,)."""
        return [self.last, *(others for _, others in self._others)]

    def add(self, touched: TouchedUnits, time: int) -> None:
        """Add an instruction's accesses; of several threads at one unit, the last and the first."""
        units, now = touched.units, time << TIME_SHIFT | touched.threads
        before = self.last[units]
        self.last[units] = now
        for (bits, others), (at, threads) in zip(self._others, touched.others, strict=True):
            other = np.flatnonzero(((before ^ now) & THREAD_MASK) >> bits != 0)
            others[units[other]] = before[other]
            others[units[at]] = time << TIME_SHIFT | threads


class ShadowMemory:
    """The last accesses to each unit of a state space.

    Attributes:
        written: The last store to each unit.
        read: The reads.
        atomic_updates: The atomic operations; None before the first.
    """

    def __init__(self, units: int, id_shifts: Sequence[int]) -> None:
        """Begin without accesses; `id_shifts` is one of the constants above."""
        self._units, self._id_shifts = units, id_shifts
        self.written = np.zeros(units, np.int64)
        self.read = AccessHistory(units, id_shifts)
        self.atomic_updates: AccessHistory | None = None

    def update(self, touched: TouchedUnits, time: int) -> None:
        """Add an instruction's atomic operations."""
        if self.atomic_updates is None:
            self.atomic_updates = AccessHistory(self._units, self._id_shifts)
        self.atomic_updates.add(touched, time)
