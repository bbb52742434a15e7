"""Shuffles, votes, matches and reductions of a warp, in NumPy.

Every array has shape (warps, 32). `active` marks the lanes that execute the instruction. The member
mask of a lane names the lanes that take part with it (PTX ISA, chapters 9.7.8 and 9.7.13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Function = Callable[..., Any]
LaneValues = Any
Mask = NDArray[np.bool_]

_LANE = np.arange(32, dtype=np.uint32)
_EVERY_LANE = np.uint32(0xFFFF_FFFF)


UNDEFINED = np.uint32(0xFFFF_FFFF)
"""The value that a shuffle reads from a lane that takes no part, which PTX leaves undefined. It is
a NaN in every floating-point width, so that it shows in results."""


def source_lanes(mode: str, b: LaneValues, c: LaneValues) -> tuple[LaneValues, Mask]:
    """The lane that each lane reads in a `shfl.sync`, and whether it is in range; else its own."""
    step, clamp = (b & np.uint32(31)).astype(np.int64), c & np.uint32(31)
    segment = c >> np.uint32(8) & np.uint32(31)
    lowest = (_LANE & segment).astype(np.int64)
    highest = (_LANE & segment | clamp & ~segment).astype(np.int64)
    if mode == "up":
        source = _LANE - step
    elif mode == "down":
        source = _LANE + step
    elif mode == "bfly":
        source = _LANE ^ step
    else:
        source = lowest | (step & ~segment.astype(np.int64))
    in_range = source >= highest if mode == "up" else source <= highest
    return np.where(in_range, source, _LANE), in_range


def is_source_participating(active: Mask, source: LaneValues, mask: LaneValues) -> Mask:
    """Whether the lane that each lane reads takes part in the shuffle with it.

    It does if the reader's mask names it, and also if both lanes have the same mask.
    """
    named = (mask >> source.astype(np.uint32) & np.uint32(1)) == 1
    together = named | (np.take_along_axis(mask, source, axis=1) == mask)
    return np.asarray((together & np.take_along_axis(active, source, axis=1)) | (source == _LANE))


def shuffle(mode: str) -> Callable[..., tuple[LaneValues, LaneValues]]:
    """`shfl.sync` in mode `up`, `down`, `bfly` or `idx`: the value, and whether it was in range."""

    def run(
        active: Mask, value: LaneValues, b: LaneValues, c: LaneValues, mask: LaneValues
    ) -> tuple[LaneValues, LaneValues]:
        source, in_range = source_lanes(mode, b, c)
        read = np.take_along_axis(value, source, axis=1)
        if not (active.all() and (mask == _EVERY_LANE).all()):
            read = np.where(is_source_participating(active, source, mask), read, UNDEFINED)
        return read, in_range

    return run


def _member_groups(active: Mask, mask: LaneValues) -> Iterator[tuple[Mask, Mask]]:
    """For each distinct member mask: the lanes that have it, and those of them that it names."""
    for members in np.unique(mask[active]):
        lanes = active & (mask == members)
        yield lanes, lanes & ((members >> _LANE) & np.uint32(1) == 1)


def _over_members(
    active: Mask, mask: LaneValues, dtype: Any, function: Callable[[Mask], LaneValues]
) -> LaneValues:
    """A value per warp, computed from its members and returned to each of them."""
    result = np.zeros(active.shape, dtype)
    for lanes, members in _member_groups(active, mask):
        np.copyto(result, function(members)[:, None], where=lanes)
    return result


def _ballot_bits(lanes: Mask) -> LaneValues:
    """The lanes of each warp as a bit mask."""
    return (lanes * (np.uint32(1) << _LANE)).sum(axis=1, dtype=np.uint32)


def vote(kind: str) -> Function:
    """`vote.sync`: `all`, `any`, `uni` or `ballot`."""
    over: dict[str, Callable[[LaneValues, Mask], LaneValues]] = {
        "all": lambda p, members: (p | ~members).all(axis=1),
        "any": lambda p, members: (p & members).any(axis=1),
        "uni": lambda p, members: (p | ~members).all(axis=1) | ~(p & members).any(axis=1),
        "ballot": lambda p, members: _ballot_bits(p & members),
    }
    dtype = np.uint32 if kind == "ballot" else np.bool_
    return lambda active, p, mask: _over_members(active, mask, dtype, lambda m: over[kind](p, m))


def active_mask(active: Mask) -> LaneValues:
    """`activemask`."""
    return np.broadcast_to(_ballot_bits(active)[:, None], active.shape)


def match_any(active: Mask, value: LaneValues, mask: LaneValues) -> LaneValues:
    """`match.any.sync`: the members that hold the same value as each lane."""
    result = np.zeros(active.shape, np.uint32)
    for lanes, members in _member_groups(active, mask):
        same = (value[:, :, None] == value[:, None, :]) & members[:, None, :]
        found = (same * (np.uint32(1) << _LANE)).sum(axis=2, dtype=np.uint32)
        np.copyto(result, found, where=lanes)
    return result


def match_all(active: Mask, value: LaneValues, mask: LaneValues) -> tuple[LaneValues, LaneValues]:
    """`match.all.sync`: the members where all hold one value, else 0; and whether they do."""
    result = np.zeros(active.shape, np.uint32)
    for lanes, members in _member_groups(active, mask):
        first = np.take_along_axis(value, members.argmax(axis=1)[:, None], axis=1)
        same = ((value == first) | ~members).all(axis=1)
        np.copyto(result, np.where(same, _ballot_bits(members), np.uint32(0))[:, None], where=lanes)
    return result, result != 0


def reduce_members(function: np.ufunc, identity: int) -> Function:
    """`redux.sync`: all members' values combined by a function with an identity."""

    def run(active: Mask, value: LaneValues, mask: LaneValues) -> LaneValues:
        neutral = np.array(identity).astype(value.dtype)

        def combined(members: Mask) -> LaneValues:
            lanes = np.where(members, value, neutral)
            return np.asarray(function.reduce(lanes, axis=1, dtype=value.dtype))

        return _over_members(active, mask, value.dtype, combined)

    return run


def elect(active: Mask, mask: LaneValues) -> tuple[LaneValues, LaneValues]:
    """`elect.sync`: the lowest member, and whether the lane is it."""
    leader = _over_members(active, mask, np.uint32, lambda m: m.argmax(axis=1).astype(np.uint32))
    return leader, leader == _LANE


def first_result(function: Function) -> Function:
    """A function without its second result."""
    return lambda *sources: function(*sources)[0]
