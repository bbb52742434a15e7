"""memcheck: accesses outside their array or off their alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.checks.provenance import Origin
from memlab.device.emulator.memory import Segment

Extents: TypeAlias = Sequence[tuple[int, int]]
"""Where each array of a state space starts and ends, by rising address."""


class Bounds:
    """Says which lanes may touch what they ask for."""

    def __init__(
        self,
        observations: Observations,
        extents: Mapping[str, Extents],
        meant: Mapping[int, Origin],
    ) -> None:
        """Check a program; `meant` gives the array that a step's addresses were computed from."""
        self._observations, self._meant = observations, meant
        self._extents = {
            space: np.array(each, np.int64).reshape(-1, 2).T for space, each in extents.items()
        }

    def permitted(
        self,
        step: int,
        segment: Segment,
        address: Lanes,
        active: Lanes,
        threads: Lanes,
        size: int,
        load: bool,
    ) -> Lanes:
        """Find the lanes whose access is inside and aligned, and take note of the others.

        Args:
            step: The instruction.
            segment: What it touches.
            address: Each lane's byte address there.
            active: Lanes that take part.
            threads: Each lane's thread.
            size: Bytes that a lane moves.
            load: Whether it only reads.
        """
        taken = address[active]
        if not taken.size:
            return active
        space, array = self._meant.get(step, ("", -1))
        starts, ends = self._extents.get(segment.name, np.array([[0], [segment.size]]))
        if space == segment.name:
            starts, ends = starts[[array]], ends[[array]]
        low, high = int(taken.min()), int(taken.max()) + size
        writable = load or segment.data.flags.writeable
        aligned = not int(np.bitwise_or.reduce(taken)) & (size - 1)
        if aligned and writable and bool(((starts <= low) & (high <= ends)).any()):
            return active
        misaligned = active & ((address & (size - 1)) != 0)
        inside = np.zeros(len(address), np.bool_)
        for start, end in zip(starts.tolist() if writable else (), ends.tolist(), strict=False):
            inside |= (address >= start) & (address <= end - size)
        outside = active & ~inside & ~misaligned
        for kind, wrong in (("misaligned", misaligned), ("out of bounds", outside)):
            if wrong.any():
                self._observations.add(
                    "memcheck",
                    kind,
                    segment.name,
                    address[wrong],
                    step,
                    threads[wrong],
                    array=array if space == segment.name else None,
                )
        return np.asarray(active & inside & ~misaligned)
