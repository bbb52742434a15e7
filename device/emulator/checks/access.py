"""One memory instruction, as the lanes that executed it carried it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.emulator.machine.memory import Segment


@dataclass
class MemoryAccess:
    """An access of the lanes that are not at fault, as the tools see it.

    Attributes:
        step: The index of the instruction in the program.
        kind: `load`, `store` or `atomic`.
        segment: The memory that it touches.
        lanes: The lanes, shape (n,).
        threads: The lanes' threads, shape (n,).
        address: Byte addresses in the state space, less `moved`, shape (n,).
        position: Byte positions in the segment's data, less `moved`, shape (n,).
        moved: Bytes to add to `address` and `position`: the same access, at another place, was
            located before.
        size: Bytes per lane.
        element_bytes: Bytes per element; a lane moves one element or a vector of them.
        unit_bytes: Bytes per unit of memory, the resolution of the checks in this space.
        values: For a store, returns the stored bytes, shape (n, size).
        touched: The units touched, without duplicates.
    """

    step: int
    kind: str
    segment: Segment
    lanes: Lanes
    threads: Lanes
    address: Lanes
    position: Lanes
    moved: int
    size: int
    element_bytes: int
    unit_bytes: int
    values: Callable[[], Lanes]
    touched: TouchedUnits

    @property
    def space(self) -> str:
        """The state space."""
        return self.segment.name

    @property
    def width(self) -> int:
        """Units per lane."""
        return self.size // self.unit_bytes

    @cached_property
    def units(self) -> Lanes:
        """The units of all lanes, lane by lane, shape (n * width,)."""
        return units_of(self.position + self.moved, self.size, self.unit_bytes)

    def spread(self, values: Lanes) -> Lanes:
        """Repeat values per lane as values per unit."""
        return values if self.width == 1 else np.repeat(values, self.width)

    def units_of_whole_elements(self, chosen: Lanes) -> Lanes:
        """The positions in `units` of the elements whose units are all chosen.

        Args:
            chosen: Whether each unit is chosen, shape (n * width,).
        """
        width = self.element_bytes // self.unit_bytes
        return np.flatnonzero(np.repeat(chosen.reshape(-1, width).all(axis=1), width))

    def lanes_of_units(self, positions: Lanes) -> Lanes:
        """The positions in `lanes` of the lanes that touch the units at positions in `units`."""
        return np.asarray(positions // self.width)

    def addresses(self, positions: Lanes) -> Lanes:
        """The byte addresses of the units at positions in `units`."""
        within = positions % self.width * self.unit_bytes
        return np.asarray(self.address[self.lanes_of_units(positions)] + self.moved + within)


def units_of(position: Lanes, size: int, unit_bytes: int) -> Lanes:
    """The units that lanes of `size` bytes touch from byte positions on, lane by lane."""
    first, width = position >> (unit_bytes.bit_length() - 1), size // unit_bytes
    if width == 1:
        return np.asarray(first)
    return np.asarray((first[:, None] + np.arange(width)).reshape(-1))
