"""How often a sum of half precision changes where numbers are added to it one by one.

It is rounded after each addition. A half has few digits, so a large sum no longer changes where
small numbers are added to it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.llvm import library_of
from memlab.device.emulator.codegen.records import Pointer, Record, dtype_of

_ROUNDING = 1.5 * 2.0**52
"""A double that is added to one 2^52 times smaller, and subtracted, rounds it to a whole number."""
_HUGE = 1e300
_LATE_SHARE = 0.25  # of the additions that are followed: the last ones stand for all others


@dataclass(frozen=True)
class HalfType:
    """A floating-point type of 16 bits.

    Attributes:
        digits: Binary digits of a number.
        least_spacing: The distance of the smallest numbers.
        limit: From here on a sum is infinite.
    """

    digits: int
    least_spacing: float
    limit: float


HALF_TYPES = {
    "f16": HalfType(11, 2.0**-24, 65520.0),
    "bf16": HalfType(8, 2.0**-133, (2.0 - 2.0**-8) * 2.0**127),
}
"""By their names in PTX (IEEE 754-2019, binary16; PTX ISA, "Alternate Floating-Point Data
Formats")."""


class Sum(Record):
    """A sum under way."""

    addends: Pointer[float]  # which are added in turn
    count: int  # how many these are
    place: int  # of the next one
    total: float
    spacing: float  # of the numbers of the type at the total
    least_spacing: float
    largest: float  # this many spacings are the first number of the next power of two
    limit: float


@compiled(exported=True)
def count_changes(state: Sum, additions: int) -> int:
    """Add so many addends, in turn; return how often the sum changed."""
    changes = 0
    for _ in range(additions):
        added = state.total + state.addends[state.place]
        state.place += 1
        if state.place == state.count:
            state.place = 0
        size = added if added > 0.0 else -added
        if not size < state.limit:  # infinite, or no number, from here on
            if state.total != added:
                changes += 1
            state.total = added * _HUGE * _HUGE
            break
        while size >= state.spacing * state.largest:
            state.spacing *= 2.0
        while state.spacing > state.least_spacing and 2.0 * size < state.spacing * state.largest:
            state.spacing /= 2.0
        rounding = state.spacing * _ROUNDING
        rounded = added + rounding - rounding
        if rounded != state.total:
            changes += 1
        state.total = rounded
    return changes


@cache
def _function() -> Any:
    """`count_changes` as a Python callable of the address of a `Sum`."""
    library = library_of("half_sums", Path(__file__).parent, count_changes)
    return library.function("count_changes", ctypes.c_int64, ctypes.c_int64)


def changes_of_sum(
    first: float, addends: NDArray[np.float64], additions: float, kind: HalfType, most: int
) -> float:
    """How often a sum changes where numbers are added to it one after the other.

    Args:
        first: The sum before.
        addends: The numbers, shape (addends,): of the type. They are added over and over.
        additions: How many additions there are.
        kind: The type of the sum.
        most: Additions that are followed. The last quarter of them stands for those behind.

    Returns:
        Changes; up to `additions`.
    """
    addends = np.ascontiguousarray(addends, np.float64)
    state = np.zeros((), dtype_of(Sum))
    state["addends"], state["count"] = addends.ctypes.data, len(addends)
    state["total"] = first
    state["spacing"] = state["least_spacing"] = kind.least_spacing
    state["largest"], state["limit"] = 2.0**kind.digits, kind.limit
    followed = min(round(additions), most)
    late = int(followed * _LATE_SHARE)
    changes = _function()(state.ctypes.data, followed - late)
    changes_late = _function()(state.ctypes.data, late)
    beyond = (additions - followed) * changes_late / late if late else 0.0
    return float(changes + changes_late) + beyond
