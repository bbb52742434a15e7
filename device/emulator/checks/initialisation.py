"""initcheck: reads of memory that nothing was written to, and outputs left unwritten.

Written or not is known for each unit of memory: as many bytes as the program's narrowest access
to that state space moves. A read is at fault where all of an element is unwritten: what copies a
structure reads its padding too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks.access import MemoryAccess
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.machine.memory import GLOBAL_BASE, GlobalMemory, Segment


class InitializationCheck:
    """Which units of memory hold nothing yet."""

    def __init__(
        self,
        observations: Observations,
        memory: GlobalMemory,
        outputs: Mapping[str, int],
        unit_bytes: Mapping[str, int],
    ) -> None:
        """Start with the outputs among the arrays of global memory unwritten.

        `outputs` gives the bytes of the widest access that stores to each what is wider than a
        byte; 1 where there is none, or it is not known.
        """
        self._observations, self._memory, self._unit_bytes = observations, memory, unit_bytes
        self._widest_store_bytes = outputs
        unit = unit_bytes["global"]
        self._unwritten: dict[str, Lanes] = {
            "global": np.zeros(memory.data.size // unit + 1, np.bool_)
        }
        for name in outputs:
            self._array_units(name)[:] = True

    def begin(self, segments: Mapping[str, Segment]) -> None:
        """Take the shared and local memory of other blocks: all of it is unwritten."""
        for space in ("shared", "local"):
            units = segments[space].data.size // self._unit_bytes[space] + 1
            self._unwritten[space] = np.ones(units, np.bool_)

    def access(self, event: MemoryAccess) -> None:
        """Take one instruction."""
        empty = self._unwritten[event.space]
        touched = event.touched.units
        if event.kind != "store" and empty[touched].any():
            missing = event.units_of_whole_elements(empty[event.units])
            if missing.size:
                _, first = np.unique(event.lanes_of_units(missing), return_index=True)
                missing = missing[first]
                self._observations.add(
                    "initcheck",
                    "uninitialized read",
                    event.space,
                    event.addresses(missing),
                    event.step,
                    event.threads[event.lanes_of_units(missing)],
                )
        if event.kind != "load":
            empty[touched] = False

    def never_written(self, name: str) -> NDArray[np.int64]:
        """Row-major positions of an output's elements that were not stored to.

        Where the elements are bytes, they may be those of structures, which have padding.
        """
        found = self._memory.find(name)
        by_byte = np.repeat(self._array_units(name), self._unit_bytes["global"])[: found.size]
        if found.element_bytes == 1:
            by_byte &= ~_possible_padding(by_byte, self._widest_store_bytes[name])
        return np.flatnonzero(by_byte.reshape(-1, found.element_bytes).any(axis=1))

    def _array_units(self, name: str) -> Lanes:
        found, unit = self._memory.find(name), self._unit_bytes["global"]
        start = (found.address - GLOBAL_BASE) // unit
        return self._unwritten["global"][start : start - (-found.size // unit)]


def _possible_padding(empty: Lanes, widest: int) -> Lanes:
    """Which bytes of an array of bytes, unwritten or not, may be padding of structures.

    Padding goes up to where a member is aligned, as C++ aligns it, and is shorter than that; no
    member is aligned to more than the widest access.
    """
    edges = np.flatnonzero(np.diff(empty.astype(np.int8), prepend=0, append=0))
    starts, ends = edges[::2], edges[1::2]
    aligned = 1 << np.ceil(np.log2(ends - starts + 1)).astype(np.int64)  # wider than the gap
    fits = (aligned <= widest) & (ends % aligned == 0)
    steps = np.zeros(len(empty) + 1, np.int8)
    steps[starts[fits]], steps[ends[fits]] = 1, -1
    return np.asarray(np.cumsum(steps[:-1], dtype=np.int8) != 0)
