"""Asynchronous copies: when what `cp.async` writes has arrived.

A thread's copies go in groups; waiting lets the latest groups go on. Before its thread has waited,
a copy may still be writing, whatever barriers lie between (PTX ISA, "cp.async.wait_group").
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.checks.observations import Lanes


class AsyncCopies:
    """The copies of a chunk's lanes that are still on their way."""

    def __init__(self, lanes: int) -> None:
        self._group = np.zeros(lanes, np.int64)  # the one that is open
        self._pending = np.zeros((4, 0), np.int64)  # units, marks, lanes and their groups

    def issue(self, units: Lanes, marks: Lanes, lanes: Lanes) -> None:
        """Lanes begin to copy to units of shared memory, which keep these marks of it."""
        more = [units, marks, lanes, self._group[lanes]]
        self._pending = np.concatenate([self._pending, more], axis=1)

    def commit(self, lanes: Lanes) -> None:
        """Lanes, given as a mask, close their group."""
        self._group[lanes] += 1

    def arrived(self, waiting: Lanes, but: int | None) -> tuple[Lanes, Lanes]:
        """Take out what lanes wait for: units and marks.

        Args:
            waiting: The lanes, as a mask.
            but: How many of the latest closed groups may go on; None waits for all copies.
        """
        last = self._group if but is None else self._group - 1 - but
        _, _, lanes, groups = self._pending
        over = waiting[lanes] & (groups <= last[lanes])
        units, marks, _, _ = self._pending[:, over]
        self._pending = self._pending[:, ~over]
        return units, marks
