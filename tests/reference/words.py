"""Addresses and words in NumPy: windows of state spaces, `wmma`'s addresses, `mbarrier`'s words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from memlab.device.emulator.isa.address_space import WINDOW_BYTES, WINDOWS

_BITS = np.uint64(20)
_COUNT = np.uint64((1 << 20) - 1)
_PHASE = np.uint64(40)

# --- State spaces ----------------------------------------------------------------------------


def is_in_space(space: str, address: Any) -> Any:
    """Whether generic addresses lie in a state space; an address in no window is global."""
    inside = {
        name: (address >= np.uint64(start)) & (address < np.uint64(start + WINDOW_BYTES))
        for name, start in WINDOWS.items()
        if name != "global"
    }
    if space == "global":
        return np.asarray(~np.logical_or.reduce(list(inside.values())))
    return inside[space]


# --- Addresses of matrices -------------------------------------------------------------------


def lane_address(layout: str) -> Callable[..., Any]:
    """The address of a lane's first element of a block."""

    def run(base: Any, stride: Any, lane: Any, place: Any, lanes: Any, step: Any, size: Any) -> Any:
        row = place + lane // lanes
        column = lane % lanes * step
        if layout == "col":
            row, column = column, row
        offset = row.astype(np.uint64) * stride.astype(np.uint64) + column.astype(np.uint64)
        return base + offset * size.astype(np.uint64)

    return run


def column_address(start: Any, stride: Any, number: Any, size: Any) -> Any:
    """An address advanced by a number of columns."""
    wide = [value.astype(np.uint64) for value in (stride, number, size)]
    return start + wide[0] * wide[1] * wide[2]


# --- mbarrier --------------------------------------------------------------------------------


def initial_state(count: Any) -> Any:
    """The word of a barrier that needs this many arrivals in each phase."""
    wide = count.astype(np.uint64)
    return wide << _BITS | wide


def state_after_arrivals(drop: bool) -> Callable[..., Any]:
    """The word after `count` arrivals; with `drop`, later phases need `count` fewer."""

    def run(old: Any, count: Any) -> Any:
        arrivals = count & _COUNT
        needed = (old >> _BITS & _COUNT) - (arrivals if drop else np.uint64(0))
        pending = (old & _COUNT) - arrivals
        over = pending == 0
        phase = (old >> _PHASE) + over.astype(np.uint64)
        return phase << _PHASE | needed << _BITS | np.where(over, needed, pending)

    return run


def is_phase_complete(word: Any, token: Any) -> Any:
    """Whether the phase of a token is complete."""
    return word >> _PHASE != token >> _PHASE


def is_parity_complete(word: Any, parity: Any) -> Any:
    """Whether the phase of this parity, the current or the previous one, is complete."""
    return (word >> _PHASE & np.uint64(1)) != parity & np.uint64(1)


def pending_arrivals(token: Any) -> Any:
    """How many arrivals the phase of a token still needed."""
    return (token & _COUNT).astype(np.uint32)
