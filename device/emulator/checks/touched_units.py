"""The units of memory that one instruction touches, each once, and which threads meet there.

Lanes often touch the same: rows of a tile are read by half a warp at a time. What the tools keep of
an instruction is then short, and it is worked out once for all that touch alike: those of a loop
differ in nothing but where they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.checks.observations import Lanes


@dataclass(frozen=True)
class TouchedUnits:
    """What lanes touch.

    Attributes:
        units: Each unit once, shape (n,).
        lanes: The last lane to touch each, shape (n,).
        threads: Its thread, shape (n,).
        met: Whether several lanes touch it, shape (n,).
        others: For threads, and for warps where these are told apart: which of the units another
            one touches, too, and the first that does.
    """

    units: Lanes
    lanes: Lanes
    threads: Lanes
    contended: Lanes
    others: Sequence[tuple[Lanes, Lanes]]

    def moved(self, by: int) -> TouchedUnits:
        """The same, so many units further on."""
        return TouchedUnits(self.units + by, self.lanes, self.threads, self.contended, self.others)


def gather_touched_units(
    units: Lanes, lanes: Lanes, threads: Lanes, scratch: Lanes, apart: Sequence[int]
) -> TouchedUnits:
    """Gather what lanes touch by units.

    Args:
        units: What they touch, lane after lane, as many units each, shape (lanes * width,).
        lanes: The lanes, shape (lanes,).
        threads: Their threads, shape (lanes,).
        scratch: Memory to work with, an integer for each unit there is.
        apart: The low bits of a thread's number in which those that count as one may differ.
    """
    width = len(units) // len(lanes)
    place = np.arange(len(units), dtype=scratch.dtype)
    scratch[units] = place  # of several at one unit, the last stays
    left = scratch[units]
    is_last = left == place
    last = np.flatnonzero(is_last)
    met = np.zeros(len(last), np.bool_)
    nothing = np.zeros(0, np.int64)
    others = [(nothing, nothing)] * len(apart)
    if len(last) < len(units):
        once, lost = units[last], np.flatnonzero(~is_last)[::-1]
        for number, bits in enumerate(apart):
            differs = (threads[lost // width] ^ threads[left[lost] // width]) >> bits != 0
            scratch[once] = last
            scratch[units[lost[differs]]] = lost[differs]
            first = scratch[once]
            shared = np.flatnonzero(first != last)
            others[number] = shared, threads[first[shared] // width]
            met[shared] = True
        units = once
    at = last // width
    return TouchedUnits(units, lanes[at], threads[at], met, others)
