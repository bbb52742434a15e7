"""initcheck: reads of memory that nothing was written to, and outputs left unwritten.

Written or not is known for each unit of memory: as many bytes as the program's narrowest access
to that state space moves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks.event import Event
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.memory import GLOBAL_BASE, GlobalMemory, Segment


class Initialisation:
    """Which units of memory hold nothing yet."""

    def __init__(
        self,
        observations: Observations,
        memory: GlobalMemory,
        outputs: Collection[str],
        unit_bytes: Mapping[str, int],
    ) -> None:
        """Start with the outputs among the arrays of global memory unwritten."""
        self._observations, self._memory, self._unit_bytes = observations, memory, unit_bytes
        unit = unit_bytes["global"]
        self._empty: dict[str, Lanes] = {"global": np.zeros(memory.data.size // unit + 1, np.bool_)}
        for name in outputs:
            self._units_of(name)[:] = True

    def begin(self, segments: Mapping[str, Segment]) -> None:
        """Take the shared and local memory of other blocks: all of it is unwritten."""
        for space in ("shared", "local"):
            units = segments[space].data.size // self._unit_bytes[space] + 1
            self._empty[space] = np.ones(units, np.bool_)

    def access(self, event: Event) -> None:
        """Take one instruction."""
        empty = self._empty[event.space]
        if event.kind != "store":
            missing = np.flatnonzero(empty[event.units])
            if missing.size:
                _, first = np.unique(event.lane_of(missing), return_index=True)
                missing = missing[first]
                self._observations.add(
                    "initcheck",
                    "uninitialized read",
                    event.space,
                    event.addresses(missing),
                    event.step,
                    event.threads[event.lane_of(missing)],
                )
        if event.kind != "load":
            empty[event.units] = False

    def never_written(self, name: str) -> NDArray[np.int64]:
        """Row-major positions of an output's elements that were not stored to."""
        found = self._memory.find(name)
        by_byte = np.repeat(self._units_of(name), self._unit_bytes["global"])[: found.size]
        return np.flatnonzero(by_byte.reshape(-1, found.element_bytes).any(axis=1))

    def _units_of(self, name: str) -> Lanes:
        found, unit = self._memory.find(name), self._unit_bytes["global"]
        start = (found.address - GLOBAL_BASE) // unit
        return self._empty["global"][start : start - (-found.size // unit)]
