"""Asynchronous copies: when what `cp.async` writes has arrived.

A thread's copies go in groups; waiting lets the latest groups go on. Before its thread has waited,
a copy may still be writing, whatever barriers lie between (PTX ISA, "cp.async.wait_group").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.checks.observations import Lanes

NEVER = (1 << 31) - 1
"""Later than any time."""


@dataclass
class _Copy:
    """One instruction: of each lane its group, -1 for none, and when it was waited for."""

    groups: Lanes
    completed: Lanes


class Copies:
    """The asynchronous copies of a chunk's lanes."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._group = np.zeros(lanes, np.int32)  # the one that is open
        self._copies: dict[int, _Copy] = {}
        self._pending: list[_Copy] = []

    def issued(self, time: int, lanes: Lanes) -> None:
        """Lanes begin to copy."""
        groups = np.full(self._lanes, -1, np.int32)
        groups[lanes] = self._group[lanes]
        copy = _Copy(groups, np.where(groups < 0, 0, NEVER).astype(np.int32))
        self._copies[time] = copy
        self._pending.append(copy)

    def commit(self, lanes: Lanes) -> None:
        """Lanes, given as a mask, close their group."""
        self._group[lanes] += 1

    def wait(self, lanes: Lanes, time: int, but: int | None) -> None:
        """Lanes, given as a mask, wait for their groups.

        Args:
            lanes: Who waits.
            time: Of the last access before it.
            but: How many of the latest closed groups may go on; None waits for all copies.
        """
        last = self._group if but is None else self._group - 1 - but
        for copy in self._pending:
            over = lanes & (copy.groups <= last) & (copy.completed == NEVER)
            copy.completed[over] = time
        self._pending = [each for each in self._pending if (each.completed == NEVER).any()]

    def completed(self, times: Lanes, lanes: Lanes) -> Lanes:
        """When copies, each by its time and lane, were waited for."""
        found = np.empty(len(times), np.int64)
        for time in np.unique(times).tolist():
            chosen = times == time
            copy = self._copies.get(int(time))
            found[chosen] = NEVER if copy is None else copy.completed[lanes[chosen]]
        return found
