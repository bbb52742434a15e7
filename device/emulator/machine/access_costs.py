"""Costs of memory accesses as the hardware counts them: requests, sectors, wavefronts.

The addresses of a warp relative to the line of its first lane form a *pattern*. Kernels repeat few
patterns many times, so patterns are interned, and the cost of each is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.properties import SECTOR_BYTES, WARP_SIZE

Lanes = NDArray[Any]

_MOST_HELD_BYTES = 2**27  # of interned patterns: enough for those of hundreds of chunks
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


class Pattern:
    """The addresses of a chunk's warps relative to their first lanes' lines, with their costs.

    Attributes:
        relative: As in `count_sectors`.
        active: Warps that take part, shape (warps,).
        costs: The costs computed so far, by state space, offset and width.
    """

    def __init__(self, relative: Lanes, active: Lanes) -> None:
        self.relative, self.active = relative, active
        self.costs: dict[tuple[str, int, int], Any] = {}


class Patterns:
    """Interns address patterns, so that the cost of each is computed once.

    Where data decides the addresses, patterns hardly repeat: all are forgotten whenever they take
    too much memory.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Pattern] = {}
        self._recent: dict[Any, list[Pattern]] = {}
        self._held_bytes = 0

    def intern(self, site: Any, relative: Lanes, active: Lanes) -> Pattern:
        """The interned pattern equal to this one; recent ones of `site` are compared first."""
        recent = self._recent.setdefault(site, [])
        for candidate in recent:
            if np.array_equal(candidate.relative, relative) and np.array_equal(
                candidate.active, active
            ):
                return candidate
        key = relative.tobytes() + active.tobytes()
        pattern = self._known.get(key)
        if pattern is None:
            self._hold(2 * len(key))
            pattern = self._known[key] = Pattern(relative, active)
        recent = self._recent.setdefault(site, [])
        recent.insert(0, pattern)
        del recent[8:]  # unrolled loops alternate between a few alignments
        return pattern

    def sectors(self, pattern: Pattern, offset: int) -> SectorCount:
        """The sectors of a pattern with `offset` bytes added to every address."""
        cost: SectorCount | None = pattern.costs.get(("global", offset, 0))
        if cost is None:
            cost = count_sectors(pattern.relative, pattern.active, offset)
            self._keep(pattern, ("global", offset, 0), cost)
        return cost

    def local(self, pattern: Pattern, offset: int, width: int) -> SectorCount:
        """The sectors of a local-memory pattern with `offset` bytes added to every address."""
        cost: SectorCount | None = pattern.costs.get(("local", offset, width))
        if cost is None:
            cost = count_local(pattern.relative, pattern.active, offset, width)
            self._keep(pattern, ("local", offset, width), cost)
        return cost

    def wavefronts(self, pattern: Pattern, offset: int, width: int) -> WavefrontCount:
        """The wavefronts of a pattern with `offset` bytes added to every address."""
        moved = offset % BANK_BYTES
        cost: WavefrontCount | None = pattern.costs.get(("shared", moved, width))
        if cost is None:
            cost = count_wavefronts(pattern.relative + moved, pattern.active, width)
            pattern.costs["shared", moved, width] = cost
        return cost

    def _keep(self, pattern: Pattern, key: tuple[str, int, int], cost: SectorCount) -> None:
        pattern.costs[key] = cost
        self._hold(cost.per_warp.nbytes + cost.offsets.nbytes)

    def _hold(self, more_bytes: int) -> None:
        """Note memory in use, and forget all patterns beyond the limit; users keep theirs."""
        self._held_bytes += more_bytes
        if self._held_bytes > _MOST_HELD_BYTES:
            self._known.clear()
            self._recent.clear()
            self._held_bytes = more_bytes


@dataclass
class Tally:
    """Counts of each instruction of a program: lists indexed by its position.

    Attributes:
        lanes: Lanes that executed it and were not predicated off.
        warps: Warps that executed it.
        requests: Warp-level memory instructions, after merging by ptxas.
        sectors: Sectors of global and local accesses.
        wavefronts: Wavefronts of shared accesses; 128-byte lines of global and local accesses;
            distinct addresses, which are served in sequence, of constant accesses.
        excessive: Wavefronts beyond the ideal.
        bytes: Bytes that the lanes requested.
        used: Bytes of global memory that the warps requested; bytes that several lanes of a warp
            request count once.
    """

    lanes: list[int]
    warps: list[int]
    requests: list[int]
    sectors: list[int]
    wavefronts: list[int]
    excessive: list[int]
    bytes: list[int]
    used: list[int]

    @classmethod
    def zeros(cls, instructions: int) -> Tally:
        """A tally of zeros."""
        return cls(*([0] * instructions for _ in range(8)))

    def add(self, other: Tally, times: int = 1, over: int = 1) -> None:
        """Add another tally, scaled by `times / over` and rounded to whole counts."""
        for counter in fields(self):
            totals, added = getattr(self, counter.name), getattr(other, counter.name)
            for index, value in enumerate(added):
                totals[index] += value if times == over else round(value * times / over)
