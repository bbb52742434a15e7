"""Costs of memory accesses in NumPy, for many warps at once: the reference of the machine code."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

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


class WavefrontCount(NamedTuple):
    """The cost of the access of one warp to shared memory.

    Attributes:
        wavefronts: Passes.
        ideal: Passes without bank conflicts.
        words: Distinct words of the lanes that are served at once, summed.
    """

    wavefronts: int
    ideal: int
    words: int


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


def count_wavefronts(address: Sequence[int], lanes: Sequence[int], width: int) -> WavefrontCount:
    """Count the passes that the 32 banks of 4 bytes need for the access of one warp.

    As many lanes are served at once as need 128 bytes, and twice as many if pairs of all active
    lanes, next to each other or two lanes apart, have the same address. They share words. The
    ideal is the number of wavefronts that as many distinct words need without a conflict, each of
    these parts of a warp for itself, but at most what the bytes of all active lanes need.

    Args:
        address: Byte addresses, by lane; those of inactive lanes do not matter.
        lanes: The active lanes.
        width: Bytes per lane: 1 to 16.
    """
    at_once, active = min(128 // min(width, 16), WARP_SIZE), set(lanes)
    shared = [
        all(address[lane] == address[lane ^ apart] for lane in active if lane ^ apart in active)
        for apart in (1, 2)
    ]
    if at_once < WARP_SIZE and any(shared):
        at_once *= 2
    wavefronts = ideal = distinct = 0
    for start in range(0, WARP_SIZE, at_once):
        words = {
            word
            for lane in active.intersection(range(start, start + at_once))
            for word in range(
                address[lane] // BANK_BYTES, (address[lane] + width - 1) // BANK_BYTES + 1
            )
        }
        wavefronts += max(Counter(word % BANKS for word in words).values(), default=0)
        ideal += -(-len(words) // BANKS)
        distinct += len(words)
    needed = -(-len(active) * max(width, BANK_BYTES) // (BANKS * BANK_BYTES))
    return WavefrontCount(wavefronts, min(ideal, needed), distinct)


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


TAG_BANKS_OF_BITS = (1, 2, 1, 2, 3, 1, 2, 3, 2, 1, 2, 1, 3, 1)
"""The bank of L1 tags of line 2**n, by n; that of another line is the exclusive or of its bits'."""


def tag_bank(line: int) -> int:
    """The bank of L1 tags of a 128-byte line."""
    banks = [bank for bit, bank in enumerate(TAG_BANKS_OF_BITS) if line >> bit & 1]
    return functools.reduce(operator.xor, banks, 0)


def count_l1_clocks(addresses: Mapping[int, int], width: int, line: int = 0) -> int:
    """The clocks that the L1 takes for the load of a warp.

    Args:
        addresses: The address of each active lane.
        width: Bytes per lane.
        line: How far the addresses are moved, in lines.
    """
    lines = {address // LINE_BYTES + line for address in addresses.values()}
    run = BANKS * BANK_BYTES // min(max(width, BANK_BYTES), 16)
    wavefronts = 0
    for start in range(0, WARP_SIZE, run):
        words = {
            address // BANK_BYTES + word
            for lane, address in addresses.items()
            if start <= lane < start + run
            for word in range(max(width // BANK_BYTES, 1))
        }
        wavefronts += max(Counter(word % BANKS for word in words).values(), default=0)
    return max(wavefronts, *Counter(map(tag_bank, lines)).values())


def mean_l1_clocks(addresses: Mapping[int, int], width: int) -> float:
    """The mean clocks of 16 places that a load of few lines may have; of many, those of one."""
    start = addresses[min(addresses)] // LINE_BYTES * LINE_BYTES
    moved = {lane: address - start for lane, address in addresses.items()}
    few = len({address // LINE_BYTES for address in moved.values()}) <= 8
    places = [603 * place for place in range(16)] if few else [0]
    return sum(count_l1_clocks(moved, width, place) for place in places) / len(places)
