"""Addresses and words in NumPy: windows of state spaces, `wmma`'s addresses, `mbarrier`'s words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from memlab.device.emulator.isa.address_space import WINDOW_BYTES, WINDOWS

_BITS = np.uint64(20)
_COUNT = np.uint64((1 << 20) - 1)
_TRANSACTIONS = np.uint64(40)
_TRANSACTION_SPAN = np.uint64(1 << 21)
_PHASE = np.uint64(61)

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


def is_own_shared(address: Any, rank: Any) -> Any:
    """Whether a generic address lies in the 16 MiB of a rank in the window of shared memory."""
    first = np.uint64(WINDOWS["shared"]) + rank.astype(np.uint64) * np.uint64(1 << 24)
    return (address >= first) & (address - first < np.uint64(1 << 24))


def map_to_rank(address: Any, rank: Any) -> Any:
    """The address with the lowest byte of the rank as its byte 3."""
    octets = np.ascontiguousarray(address).view(np.uint8).reshape(*address.shape, -1).copy()
    octets[..., 3] = rank.astype(np.uint8)
    return octets.view(address.dtype)[..., 0]


def rank_of(address: Any) -> Any:
    """Byte 3 of the address."""
    return (address >> np.array(24, address.dtype)).astype(np.uint8).astype(np.uint32)


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


def expected_change(arrivals: Any, expected: Any) -> Any:
    """The operand for arrivals that expect so many bytes of transactions."""
    wide = expected.astype(np.uint64) % _TRANSACTION_SPAN
    return (arrivals & _COUNT) + (wide << _TRANSACTIONS)


def completed_change(completed: Any) -> Any:
    """The operand for the completion of so many bytes of transactions."""
    left = _TRANSACTION_SPAN - completed.astype(np.uint64) % _TRANSACTION_SPAN
    return left % _TRANSACTION_SPAN << _TRANSACTIONS


def changed_state(drop: bool) -> Callable[..., Any]:
    """The word after an operation; with `drop`, later phases need its arrivals no more."""

    def run(old: Any, change: Any) -> Any:
        arrivals = change & _COUNT
        left = ((old >> _TRANSACTIONS) + (change >> _TRANSACTIONS)) % _TRANSACTION_SPAN
        needed = (old >> _BITS & _COUNT) - (arrivals if drop else np.uint64(0))
        pending = (old & _COUNT) - arrivals
        over = (pending == 0) & (left == 0)
        phase = (old >> _PHASE) + over.astype(np.uint64)
        waiting = needed << _BITS | np.where(over, needed, pending)
        return phase << _PHASE | left << _TRANSACTIONS | waiting

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
