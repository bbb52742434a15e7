"""Costs of memory accesses in NumPy, for many warps at once: the reference of the machine code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.properties import SECTOR_BYTES, WARP_SIZE

Lanes = NDArray[Any]

BANKS = 32
"""Banks of shared memory (CUDA C++ Programming Guide, "Shared Memory")."""
BANK_BYTES = 4
"""Bytes that a bank delivers per wavefront."""


@dataclass(frozen=True)
class SectorCount:
    """The cost of one access of a chunk to global memory.

    Attributes:
        requests: Warps that take part.
        sectors: Distinct 32-byte sectors, summed over warps.
        lines: Distinct 128-byte lines, summed over warps: L1 looks up one tag per clock.
        addresses: Distinct addresses, summed over warps.
        per_warp: Sectors per warp, shape (warps,).
        offsets: Those sectors, warp after warp, counted from the line of the warp's first lane;
            shape (sectors,).
    """

    requests: int
    sectors: int
    lines: int
    addresses: int
    per_warp: NDArray[np.int64]
    offsets: NDArray[np.int64]


@dataclass(frozen=True)
class WavefrontCount:
    """The cost of one access of a chunk to shared memory.

    Attributes:
        instructions: Warps that take part.
        wavefronts: Passes, summed over warps.
        ideal: Passes without bank conflicts, summed over warps.
    """

    instructions: int
    wavefronts: int
    ideal: int


def count_sectors(relative: Lanes, active: Lanes, offset: int) -> SectorCount:
    """Count the sectors of a pattern.

    Args:
        relative: Byte addresses relative to the line of each warp's first lane, shape
            (warps, 32); inactive lanes repeat an active one.
        active: Warps that take part, shape (warps,).
        offset: Bytes added to every address.
    """
    sectors = np.sort((relative + offset) >> 5, axis=1)
    first = np.ones(sectors.shape, np.bool_)
    np.not_equal(sectors[:, 1:], sectors[:, :-1], out=first[:, 1:])
    first &= active[:, None]
    per_warp = first.sum(axis=1)
    new_line = first[:, 1:] & ((sectors[:, 1:] >> 2) != (sectors[:, :-1] >> 2))
    lines = int(active.sum() + new_line.sum())
    requests = int(active.sum())
    addresses = count_addresses(relative, active)
    return SectorCount(requests, int(per_warp.sum()), lines, addresses, per_warp, sectors[first])


def count_addresses(relative: Lanes, active: Lanes) -> int:
    """Count the distinct addresses of a pattern, summed over warps; as in `count_sectors`."""
    ordered = np.sort(relative[active], axis=1)
    return len(ordered) + int(np.count_nonzero(ordered[:, 1:] != ordered[:, :-1]))


def count_wavefronts(relative: Lanes, active: Lanes, width: int) -> WavefrontCount:
    """Count the passes that the 32 banks of 4 bytes need for a pattern.

    Lanes that access the same word share it. Up to 8 bytes per lane, a warp is served as a whole.
    At 16 bytes per lane, half a warp is served at a time, so that even a broadcast takes two
    wavefronts (as counted on an NVIDIA H200). The ideal is the number of wavefronts that as many
    distinct words need without a conflict.

    Args:
        relative: As in `count_sectors`.
        active: Warps that take part, shape (warps,).
        width: Bytes per lane: 1 to 16.
    """
    words_per_lane = max(width // BANK_BYTES, 1)
    halves = 2 if width == 16 else 1
    words = relative.reshape(-1, WARP_SIZE // halves) >> 2
    if words_per_lane > 1:
        words = (words[:, :, None] + np.arange(words_per_lane)).reshape(words.shape[0], -1)
    words = np.sort(words, axis=1)
    first = np.ones(words.shape, np.bool_)
    np.not_equal(words[:, 1:], words[:, :-1], out=first[:, 1:])
    rows = np.broadcast_to(np.arange(words.shape[0])[:, None], words.shape)
    load = np.bincount(
        (rows * BANKS + (words & (BANKS - 1)))[first], minlength=words.shape[0] * BANKS
    ).reshape(-1, BANKS)
    taking_part = np.repeat(active, halves)
    wavefronts = load.max(axis=1)[taking_part]
    ideal = -(-load.sum(axis=1) // BANKS)[taking_part]
    return WavefrontCount(int(active.sum()), int(wavefronts.sum()), int(ideal.sum()))


def count_local(relative: Lanes, active: Lanes, offset: int, width: int) -> SectorCount:
    """Count the sectors of a local-memory pattern.

    Local memory is interleaved by 4-byte word: the same word of a warp's 32 lanes is one
    128-byte line (CUDA C++ Programming Guide, "Local Memory").

    Args:
        relative: As in `count_sectors`, addresses within each lane's own memory.
        active: Warps that take part, shape (warps,).
        offset: Bytes added to every address.
        width: Bytes per lane.
    """
    words = ((relative + offset) >> 2)[:, :, None] + np.arange(max(width // 4, 1))
    sectors = words * 4 + (np.arange(WARP_SIZE) // 8)[None, :, None]
    return count_sectors(sectors.reshape(len(active), -1) * SECTOR_BYTES, active, 0)
