"""Bulk copies: when what they write is visible, and when their source may be overwritten.

A copy to shared memory is complete when its barrier's phase is, which a thread finds out by testing
the barrier. A copy from shared memory has read it when its thread has waited for its group. What
threads stored is visible to the copy engine behind a proxy fence only (PTX ISA, "Async proxy").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memlab.device.emulator.checks.asynchronous.async_copies import AsyncCopies
from memlab.device.emulator.checks.observations import Lanes


class BulkCopies:
    """The pending copies of a chunk's lanes.

    Attributes:
        reads: The copies from shared memory, which are waited for in groups.
        fence_times: By lane, the time of its last proxy fence.
    """

    def __init__(self, lanes: int, block_units: int) -> None:
        """Begin a chunk of so many lanes; a block has `block_units` units of shared memory."""
        self._block_units = max(block_units, 1)
        self.reads = AsyncCopies(lanes)
        self.fence_times = np.full(lanes, -1, np.int64)
        self._issued: list[tuple[Lanes, Lanes, Lanes]] = []  # units, marks, lanes
        self._pending: dict[int, list[tuple[int, Lanes, Lanes]]] = {}  # by barrier: phase, …

    def issue(self, units: Lanes, marks: Lanes, lanes: Lanes) -> None:
        """Issue copies to units of shared memory; `marks` are their shadow-memory entries."""
        self._issued.append((units, marks, lanes))

    def attach(self, lanes: Lanes, barriers: Lanes, phases: Lanes) -> None:
        """What lanes have issued to a block completes with the phases of barriers there.

        Args:
            lanes: The lanes.
            barriers: The first unit of each one's barrier.
            phases: The phase that each barrier is in.
        """
        kept = []
        for units, marks, of in self._issued:
            left, block = np.ones(len(units), np.bool_), units // self._block_units
            for lane, barrier, phase in zip(lanes, barriers.tolist(), phases.tolist(), strict=True):
                own = left & (of == lane) & (block == barrier // self._block_units)
                if own.any():
                    copies = self._pending.setdefault(barrier, [])
                    copies.append((phase, units[own], marks[own]))
                    left &= ~own
            if left.any():
                kept.append((units[left], marks[left], of[left]))
        self._issued = kept

    def complete(
        self, barriers: Sequence[int], phases: Sequence[int]
    ) -> Iterator[tuple[Lanes, Lanes]]:
        """The units and marks of copies that threads see completed, which are removed.

        Args:
            barriers: The first units of barriers that are tested.
            phases: The phase that each is in.
        """
        for barrier, phase in dict(zip(barriers, phases, strict=True)).items():
            copies = self._pending.pop(barrier, [])
            yield from ((units, marks) for at, units, marks in copies if at != phase)
            if left := [copy for copy in copies if copy[0] == phase]:
                self._pending[barrier] = left
