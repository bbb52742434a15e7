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
from memlab.device.emulator.machine.context import lanes_to_words
from memlab.device.emulator.machine.memory import Mask, Segment

_CAPACITY = 64  # footprints; one holds several arrays with an item per lane
_FARTHEST_BYTES = 2**31 - 1  # from the first lane's address


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
    """The footprints of earlier accesses, as the machine code compares them with later ones.

    Attributes:
        first: The host address of the first `FOOTPRINT` record; 0 where there is none.
    """

    def __init__(self) -> None:
        self._records = np.zeros(_CAPACITY, FOOTPRINT)
        self._known: list[AccessFootprint | None] = []
        self._arrays: list[Lanes] = []
        self.first = 0

    @property
    def is_full(self) -> bool:
        """Whether no other footprint fits."""
        return len(self._known) == _CAPACITY

    def clear(self) -> None:
        """Forget all footprints."""
        self.first = 0
        self._known.clear()
        self._arrays.clear()

    def begin(self) -> None:
        """Keep the footprints for a chunk with other threads in the same lanes."""
        self._known = [None] * len(self._known)

    def find(self, record: int) -> AccessFootprint | None:
        """The footprint whose record lies at a host address, if it is of this chunk."""
        if not record:
            return None
        number = (record - self._records.ctypes.data) // FOOTPRINT.itemsize
        return self._known[number]

    def keep(
        self,
        footprint: AccessFootprint,
        mask: Mask,
        space: int,
        size: int,
        unit_bytes: int,
        numbers: Lanes,
    ) -> None:
        """Keep the footprint of an access.

        Args:
            footprint: The footprint.
            mask: The lanes of the chunk that take part.
            space: The host address of the `CHECKED_SPACE` record of its state space.
            size: Bytes per lane.
            unit_bytes: Bytes per unit.
            numbers: The thread of each lane of the chunk, ascending.
        """
        touched = footprint.touched
        distances = footprint.address - footprint.address[0]
        low, high = int(distances.min()), int(distances.max())
        if max(-low, high) > _FARTHEST_BYTES:
            return
        relative = np.zeros(len(mask), np.int32)
        relative[footprint.lanes] = distances
        first = (int(footprint.address[0]) - footprint.segment.origin) // unit_bytes
        record = self._records[len(self._known)]
        record["next"], record["space"], record["size"] = self.first, space, size
        record["low"], record["high"] = low, high
        record["ored"], record["count"] = np.bitwise_or.reduce(distances), len(touched.units)
        record["mask"] = self._place(lanes_to_words(mask))
        record["relative"] = self._place(relative)
        record["units"] = self._place((touched.units - first).astype(np.int32))
        record["lanes"] = self._place(touched.lanes.astype(np.int32))
        record["contended"] = self._place(touched.contended) if touched.contended.any() else 0
        for number, (at, threads) in enumerate(touched.others):
            units, lanes = touched.units[at] - first, np.searchsorted(numbers, threads)
            record["other_count"][number] = len(at)
            record["other_units"][number] = self._place(units.astype(np.int32))
            record["other_lanes"][number] = self._place(lanes.astype(np.int32))
        self.first = self._records.ctypes.data + len(self._known) * FOOTPRINT.itemsize
        self._known.append(footprint)

    def _place(self, array: Lanes) -> int:
        self._arrays.append(array)
        return int(array.ctypes.data)
