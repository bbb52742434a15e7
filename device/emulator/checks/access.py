"""One memory instruction, as the lanes that executed it carried it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.machine.memory import Segment


@dataclass(frozen=True)
class MemoryAccess:
    """An access of the lanes that are not at fault, as the tools see it.

    Attributes:
        step: The index of the instruction in the program.
        kind: `load`, `store` or `atomic`.
        segment: The memory that it touches.
        lanes: The lanes, shape (n,).
        threads: The lanes' threads, shape (n,).
        address: Byte addresses in the state space, shape (n,).
        units: The units of all lanes, lane by lane, shape (n * width,).
        element_bytes: Bytes per element; a lane moves one element or a vector of them.
        unit_bytes: Bytes per unit of memory, the resolution of the checks in this space.
        values: For a store, returns the stored bytes, shape (n, bytes per lane); None where they
            are not compared.
    """

    step: int
    kind: str
    segment: Segment
    lanes: Lanes
    threads: Lanes
    address: Lanes
    units: Lanes
    element_bytes: int
    unit_bytes: int
    values: Callable[[], Lanes] | None

    @property
    def space(self) -> str:
        """The state space."""
        return self.segment.name

    @property
    def width(self) -> int:
        """Units per lane."""
        return len(self.units) // len(self.lanes)

    def spread(self, values: Lanes) -> Lanes:
        """Repeat values per lane as values per unit."""
        return values if self.width == 1 else np.repeat(values, self.width)

    def units_of_whole_elements(self, chosen: Lanes) -> Lanes:
        """The positions in `units` of the elements whose units are all chosen.

        Args:
            chosen: Whether each unit is chosen, shape (n * width,).
        """
        width = self.element_bytes // self.unit_bytes
        if width > 1:
            chosen = np.repeat(chosen.reshape(-1, width).all(axis=1), width)
        return np.flatnonzero(chosen)

    def lanes_of_units(self, positions: Lanes) -> Lanes:
        """The positions in `lanes` of the lanes that touch the units at positions in `units`."""
        return positions if self.width == 1 else np.asarray(positions // self.width)

    def addresses(self, positions: Lanes) -> Lanes:
        """The byte addresses of the units at positions in `units`."""
        addresses = self.address[self.lanes_of_units(positions)]
        if self.width > 1:
            addresses += positions % self.width * self.unit_bytes
        return addresses
