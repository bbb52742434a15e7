"""How much of the work of atomics and stores falls to one slice of the L2, by which all SMs wait.

The slices of the L2 execute atomics. A slice takes the sectors of a request one after the other,
and a sector as many times (*passes*) as lanes have the same address. Measured on an H200
(`docs/results/h200-atomics.csv`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.execution_trace import GlobalAccesses
from memlab.device.emulator.models.address_streams import IntArray, sectors_of
from memlab.device.emulator.program.program import ATOMIC_KINDS, Program

Floats = NDArray[np.float64]

_HALF_SECTORS_BITS, _REGION_SECTORS_BITS = 3, 5
"""Pieces of 256 bytes alternate between two slices within 1 KiB, and each KiB has other slices:
on an H200 the atomics of a warp on 2, 4, 8, 16 and 32 neighbouring lines take as long as those on
2, 2, 4, 4 and 4 sectors of one line."""


@dataclass(frozen=True)
class AtomicContention:
    """What a request of an atomic asks of the slice, and of the sector, that all blocks use most.

    Attributes:
        slice_passes: Passes in that slice, per request.
        sector_passes: Passes in that sector, per request.
        regions: Regions of 1 KiB that the atomics of all blocks use; 0 where the recorded blocks
            share none, so that there are many.
    """

    slice_passes: float = 0.0
    sector_passes: float = 0.0
    regions: float = 0.0


def atomic_contention(
    program: Program, trace: GlobalAccesses, blocks: IntArray
) -> dict[int, AtomicContention]:
    """Find the slice and the sector that the recorded blocks use most, for each atomic.

    What a single block uses most does not count: the median over the blocks does.

    Args:
        program: The program.
        trace: The accesses of the blocks.
        blocks: Coordinates of the blocks, in the order of their warps; shape (blocks, 3). One that
            was recorded twice counts once.

    Returns:
        The contention of each atomic, by its position in the program.
    """
    return {
        place: _contention(trace, accesses, block)
        for place, accesses, block in _accesses(program, ATOMIC_KINDS, trace, blocks)
    }


def common_stores(program: Program, trace: GlobalAccesses, blocks: IntArray) -> dict[int, float]:
    """Find the address that the recorded blocks store to most, for each store.

    Args:
        program: The program.
        trace: The accesses of the blocks.
        blocks: As of `atomic_contention`.

    Returns:
        The share of a store's requests that begin there, by its position in the program; without
        those that share no address. Neighbours may share sectors that others do not store to.
    """
    found = {}
    for place, accesses, block in _accesses(program, ("store",), trace, blocks):
        once = np.ones(len(accesses))
        if share := _most_used(trace.base[accesses], once, block, np.bincount(block)):
            found[place] = share
    return found


def _accesses(
    program: Program, kinds: Sequence[str], trace: GlobalAccesses, blocks: IntArray
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """The position of each instruction of some kinds, its accesses, and the block of each."""
    _, distinct = np.unique(blocks, axis=0, return_index=True)
    block = trace.warp // (trace.warps // len(blocks))
    index = trace.index[trace.event]
    is_chosen = np.array([step.row.kind in kinds for step in program.steps], np.bool_)
    chosen = np.flatnonzero(is_chosen[index] & np.isin(block, distinct))
    for place in np.unique(index[chosen]).tolist():
        accesses = chosen[index[chosen] == place]
        yield place, accesses, block[accesses]


def _contention(trace: GlobalAccesses, accesses: IntArray, block: IntArray) -> AtomicContention:
    """The contention of an atomic, of which these are the accesses."""
    count = trace.count[accesses]
    sector = sectors_of(trace, accesses)
    passes = np.repeat(trace.passes[accesses] / count, count)
    region, half = sector >> _REGION_SECTORS_BITS, sector >> _HALF_SECTORS_BITS & 1
    requests = np.bincount(block)
    of_block = np.repeat(block, count)
    return AtomicContention(
        _most_used(2 * region + half, passes, of_block, requests),
        _most_used(sector, passes, of_block, requests),
        _common_regions(region, of_block),
    )


def _common_regions(region: IntArray, block: IntArray) -> float:
    """How many regions all blocks use, from those that two halves of the recorded ones share.

    The estimate of Lincoln and Petersen: as many of one half's regions as are the other's, too, are
    those that the other half found of all. 0 where the halves share none.
    """
    is_late = block > np.median(np.unique(block))
    early, late = np.unique(region[~is_late]), np.unique(region[is_late])
    shared = np.intersect1d(early, late).size
    return early.size * late.size / shared if shared else 0.0


def _most_used(place: IntArray, passes: Floats, block: IntArray, requests: IntArray) -> float:
    """The most passes per request at one place: the median over the blocks that make requests."""
    places, number = np.unique(place, return_inverse=True)
    used = np.zeros((len(requests), len(places)))
    np.add.at(used, (block, number), passes)
    active = requests > 0
    return float(np.median(used[active] / requests[active, None], axis=0).max())
