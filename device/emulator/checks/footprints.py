"""Footprints of accesses: the places that lanes of a chunk touch, kept for similar accesses.

Two accesses are similar if the same lanes take part and all addresses differ by the same distance.
The iterations of a loop, and accesses from one address register with several offsets, are similar.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.emulator.codegen.check_layout import FOOTPRINT
from memlab.device.emulator.machine.memory import Segment
from memlab.device.properties import WARP_SIZE

_FOOTPRINTS = 32
"""Footprints that are kept; one holds several arrays with an item per lane."""


@dataclass(frozen=True)
class AccessFootprint:
    """The places that lanes touch in a segment.

    Attributes:
        segment: The segment.
        address: Byte addresses in the state space, shape (n,).
        position: Byte positions in the segment's data, shape (n,).
        lanes: The lanes, shape (n,).
        threads: The lanes' threads, shape (n,).
        touched: The units touched, without duplicates.
    """

    segment: Segment
    address: Lanes
    position: Lanes
    lanes: Lanes
    threads: Lanes
    touched: TouchedUnits


class Footprints:
    """The footprints of earlier accesses, which the machine code makes and finds.

    Attributes:
        records: The `FOOTPRINT` records.
    """

    def __init__(self) -> None:
        self.records = np.zeros(_FOOTPRINTS, FOOTPRINT)
        self._memory = np.zeros(0, np.int32)
        self._known: dict[int, tuple[int, AccessFootprint]] = {}

    def begin(self, lanes: int, width: int, *, with_same_lanes: bool) -> None:
        """Take a chunk of lanes that touch so many units at most, perhaps the lanes of the last."""
        self._known.clear()
        if with_same_lanes:
            return
        sizes = {"mask": lanes // WARP_SIZE, "relative": lanes}
        sizes |= dict.fromkeys(("units", "lanes", "others", "warps"), lanes * width)
        ends = np.cumsum(list(sizes.values()))
        self._memory = np.empty((_FOOTPRINTS, int(ends[-1])), np.int32)
        starts = self._memory.ctypes.data + self._memory.strides[0] * np.arange(_FOOTPRINTS)
        for name, size, end in zip(sizes, sizes.values(), ends.tolist(), strict=True):
            self.records[name] = starts + (end - size) * self._memory.itemsize
        self.records["space"] = 0

    def find(self, record: int) -> AccessFootprint | None:
        """The same footprint for the tools, if it was kept: of the record at a host address."""
        number = self._number(record)
        version, footprint = self._known.get(number, (-1, None))
        return footprint if version == self.records["version"][number] else None

    def keep(self, record: int, footprint: AccessFootprint) -> None:
        """Keep a footprint for the tools."""
        number = self._number(record)
        self._known[number] = int(self.records["version"][number]), footprint

    def _number(self, record: int) -> int:
        return (record - int(self.records.ctypes.data)) // FOOTPRINT.itemsize
