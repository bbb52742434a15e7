"""One memory instruction as the lanes that took part in it carried it out."""

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
    """What the tools are told of an access, faulting lanes left out.

    Attributes:
        step: The instruction's place in the program.
        kind: `load`, `store` or `atomic`.
        segment: What it touches.
        lanes: The lanes, shape (n,).
        threads: Their threads, shape (n,).
        address: Byte address of each in its space, less `moved`, shape (n,).
        position: Byte position of each in the segment's data, less `moved`, shape (n,).
        moved: Bytes.
        size: Bytes that a lane moves.
        element_bytes: Bytes of each of the elements, one or more, that it moves.
        unit_bytes: Bytes of a unit of memory, the finest that is told apart in this space.
        values: Of a store, gives the bytes that each lane writes, shape (n, size).
        touched: The units touched, each once.
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
        """Units that a lane moves."""
        return max(self.size // self.unit_bytes, 1)

    @cached_property
    def units(self) -> Lanes:
        """Every unit touched, lane by lane, shape (n * width,)."""
        return units_of(self.position + self.moved, self.size, self.unit_bytes)

    def spread(self, values: Lanes) -> Lanes:
        """Values of the lanes as values of the units."""
        return values if self.width == 1 else np.repeat(values, self.width)

    def units_of_whole_elements(self, chosen: Lanes) -> Lanes:
        """The places among `units` of those elements all of whose units are chosen.

        Args:
            chosen: Of each of the units whether it is.
        """
        width = max(self.element_bytes // self.unit_bytes, 1)
        return np.flatnonzero(np.repeat(chosen.reshape(-1, width).all(axis=1), width))

    def lanes_of_units(self, places: Lanes) -> Lanes:
        """Which of the lanes touched the units at these places of `units`."""
        return np.asarray(places // self.width)

    def addresses(self, places: Lanes) -> Lanes:
        """Byte addresses of the units at these places of `units`."""
        within = places % self.width * self.unit_bytes
        return np.asarray(self.address[self.lanes_of_units(places)] + self.moved + within)


def units_of(position: Lanes, size: int, unit_bytes: int) -> Lanes:
    """The units that lanes touch which move `size` bytes each, lane by lane."""
    first, width = position >> (unit_bytes.bit_length() - 1), max(size // unit_bytes, 1)
    if width == 1:
        return np.asarray(first)
    return np.asarray((first[:, None] + np.arange(width)).reshape(-1))
