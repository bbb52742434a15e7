"""The units of memory that one instruction touches, without duplicates, and where threads collide.

Lanes often touch the same units: rows of a tile are read by half a warp at a time. Without
duplicates, the data that the tools keep of an instruction is small. It is also computed once for
all similar accesses: the iterations of a loop differ only in their first unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.checks.observations import Lanes


@dataclass(frozen=True)
class TouchedUnits:
    """The units that lanes touch.

    Attributes:
        units: The units without duplicates, shape (n,).
        lanes: The last lane to touch each unit, shape (n,).
        threads: The threads of these lanes, shape (n,).
        contended: Whether several threads touch the unit, shape (n,).
        others: For threads, and for warps if these are distinguished: the positions of the units
            that another thread (or warp) touches too, and the first such thread.
    """

    units: Lanes
    lanes: Lanes
    threads: Lanes
    contended: Lanes
    others: Sequence[tuple[Lanes, Lanes]]

    def moved(self, by: int) -> TouchedUnits:
        """The same units, moved by a number of units."""
        return TouchedUnits(self.units + by, self.lanes, self.threads, self.contended, self.others)


def gather_touched_units(
    units: Lanes, lanes: Lanes, threads: Lanes, scratch: Lanes, id_shifts: Sequence[int]
) -> TouchedUnits:
    """Remove duplicates from the units that lanes touch.

    Args:
        units: The units, lane by lane, the same number per lane, shape (lanes * width,).
        lanes: The lanes, shape (lanes,).
        threads: The lanes' threads, shape (lanes,).
        scratch: Scratch memory: an integer for every unit of the state space.
        id_shifts: As in `ShadowMemory`.
    """
    width = len(units) // len(lanes)
    position = np.arange(len(units))
    scratch[units] = position  # the last of several positions at one unit stays
    left = scratch[units]
    is_last = left == position
    last = np.flatnonzero(is_last)
    contended = np.zeros(len(last), np.bool_)
    nothing = np.zeros(0, np.int64)
    others = [(nothing, nothing)] * len(id_shifts)
    if len(last) < len(units):
        distinct, lost = units[last], np.flatnonzero(~is_last)[::-1]
        for number, bits in enumerate(id_shifts):
            differs = (threads[lost // width] ^ threads[left[lost] // width]) >> bits != 0
            scratch[distinct] = last
            scratch[units[lost[differs]]] = lost[differs]
            first = scratch[distinct]
            shared = np.flatnonzero(first != last)
            others[number] = shared, threads[first[shared] // width]
            contended[shared] = True
        units = distinct
    owners = last // width
    return TouchedUnits(units, lanes[owners], threads[owners], contended, others)
