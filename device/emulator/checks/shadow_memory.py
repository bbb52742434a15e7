"""Shadow memory: the earlier accesses to each unit, for later ones to be compared with.

An entry is one number: the time of the access in its upper bits, the thread in its lower 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.codegen.check_layout import THREAD_MASK, WARP_BITS

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
        recorded_accesses: The entries of all units, several arrays of shape (units,): `last`, the
            last access by another thread than its own, and by another warp.
    """

    def __init__(self, units: int, id_shifts: Sequence[int]) -> None:
        """Begin without accesses; `id_shifts` as in `ShadowMemory`."""
        self.last, self._id_shifts = np.zeros(units, np.int64), id_shifts
        self.recorded_accesses = [self.last, *(np.zeros(units, np.int64) for _ in id_shifts)]

    def add(self, units: Lanes, entries: Lanes) -> None:
        """Add an instruction's accesses; of several threads at one unit, the last and the first."""
        before = self.last[units]
        self.last[units] = entries  # of several entries for one unit, the last one stays
        left = self.last[units]
        for bits, others in zip(self._id_shifts, self.recorded_accesses[1:], strict=True):
            for older in (before, entries):
                other = np.flatnonzero((older ^ left) & (THREAD_MASK >> bits << bits))[::-1]
                others[units[other]] = older[other]


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

    def forget(self, units: slice) -> None:
        """Forget all accesses to some units, which are new memory."""
        histories = [self.read, *([] if self.atomic_updates is None else [self.atomic_updates])]
        for entries in (self.written, *(e for h in histories for e in h.recorded_accesses)):
            entries[units] = 0

    def update(self, units: Lanes, entries: Lanes) -> None:
        """Add an instruction's atomic operations."""
        if self.atomic_updates is None:
            self.atomic_updates = AccessHistory(self._units, self._id_shifts)
        self.atomic_updates.add(units, entries)
