"""The traffic of a whole grid, from that of its first waves of blocks.

Waves that were not replayed do as the last ones that were. Only what they read for the first time
is different: where instructions read an array at random, fewer and fewer of its sectors are left
that no block has read. Of n sectors, the share that k reads leave is (1 - 1/n)^k, so first reads
decline by the same factor over equal numbers of blocks; those of an array that is read from end to
end do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.models.cache_replay import InstructionTraffic, ReplayedTraffic

Sectors = NDArray[np.float64]
COLUMNS = tuple(InstructionTraffic.__dataclass_fields__)
_FROM_MEMORY = ("memory_reads", "atomic_misses", "fetches", "joined_memory", "l2_joined_memory")
"""Columns that first reads are a part of, or that go with them."""
_DEVIATIONS = 3.0
"""A decline of less than so many standard deviations of the counts is none."""


def of_whole_grid(
    replayed: ReplayedTraffic, executed: int, blocks: int, wave: int
) -> dict[str, Sectors]:
    """The columns of `InstructionTraffic` for all blocks.

    Args:
        replayed: The traffic of the blocks that were executed.
        executed: How many these are.
        blocks: The blocks of the grid.
        wave: Blocks that are resident at once.
    """
    first, settling, later = (
        {name: np.asarray(getattr(group, name), np.float64) for name in COLUMNS}
        for group in (replayed.first_wave, replayed.settling, replayed.later)
    )
    seen = {name: first[name] + settling[name] + later[name] for name in COLUMNS}
    if blocks <= executed:
        return seen
    settled = (executed - wave) // 2
    repeats = (blocks - executed) / (executed - wave - settled)
    further = {name: later[name] * repeats for name in COLUMNS}
    before, after = later["first_reads"], later["first_reads"] * _declined(settling, later, repeats)
    # Reads that are not the first ones any more do as all others do.
    others = (further["accesses"] - after) / np.maximum(later["accesses"] - before, 1.0)
    from_memory = np.maximum(later["memory_reads"] + later["atomic_misses"], 1.0)
    for name in ("l2_misses", *_FROM_MEMORY):
        is_first = later[name] * before / from_memory
        if name == "l2_misses":
            is_first = np.minimum(before, later[name])
        of_first = is_first * after / np.maximum(before, 1.0)
        further[name] = of_first + (later[name] - is_first) * others
    further["first_reads"] = after
    return {name: seen[name] + further[name] for name in COLUMNS}


def _declined(settling: dict[str, Sectors], later: dict[str, Sectors], repeats: float) -> Sectors:
    """The first reads of so many repeats of the later blocks, over those of these blocks."""
    before, after = (
        np.maximum(group["first_reads"], 1.0) / np.maximum(group["accesses"], 1.0)
        for group in (settling, later)
    )
    counted = 1 / np.maximum(settling["first_reads"], 1.0)
    counted += 1 / np.maximum(later["first_reads"], 1.0)
    factor = np.minimum(after / before, 1.0)
    is_constant = -np.log(factor) < _DEVIATIONS * np.sqrt(counted)
    slower = np.where(is_constant, 0.5, factor)  # any factor below 1, for the sum
    total = slower * (1 - slower**repeats) / (1 - slower)
    constant: Sectors = np.where(is_constant, repeats, total)
    return constant
