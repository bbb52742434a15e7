"""Asynchronous copies: when the data that `cp.async` writes is visible.

A thread's copies are committed in groups. A wait completes all groups but the latest ones. Before
its thread has waited, a copy may still be writing, whatever barriers lie between (PTX ISA,
"cp.async.wait_group").
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.checks.observations import Lanes


class AsyncCopies:
    """The pending copies of a chunk's lanes."""

    def __init__(self, lanes: int) -> None:
        self._open_group = np.zeros(lanes, np.int64)
        self._pending = np.zeros((4, 0), np.int64)  # rows: units, marks, lanes, groups

    def issue(self, units: Lanes, marks: Lanes, lanes: Lanes) -> None:
        """Issue copies to units of shared memory; `marks` are their shadow-memory entries."""
        more = [units, marks, lanes, self._open_group[lanes]]
        self._pending = np.concatenate([self._pending, more], axis=1)

    def commit(self, lanes: Lanes) -> None:
        """Lanes, as a mask, commit their open group."""
        self._open_group[lanes] += 1

    def complete(self, waiting: Lanes, but: int | None) -> tuple[Lanes, Lanes]:
        """Remove the copies that lanes wait for, and return their units and marks.

        Args:
            waiting: The lanes, as a mask.
            but: The number of latest committed groups that may stay pending; None waits for all
                copies.
        """
        last = self._open_group if but is None else self._open_group - 1 - but
        _, _, lanes, groups = self._pending
        completed = waiting[lanes] & (groups <= last[lanes])
        units, marks, _, _ = self._pending[:, completed]
        self._pending = self._pending[:, ~completed]
        return units, marks
