"""Which sectors a warp stores to again soon: the L1 may still hold them, and merges the stores."""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access
from memlab.device.emulator.machine.execution_trace import GlobalAccesses
from memlab.device.emulator.models.address_streams import IntArray, sectors_of
from memlab.device.emulator.program.program import Program

FARTHEST_STORE = 8
"""Stores of a warp behind which a sector counts as stored to for the first time. Where a warp
stores to the elements of each lane one by one, the one before had the same sectors."""


def repeated_stores(
    program: Program, trace: GlobalAccesses, blocks: IntArray
) -> dict[int, tuple[float, ...]]:
    """The shares of the sectors of each store that its warp has just stored to.

    Args:
        program: The program.
        trace: The accesses of the blocks.
        blocks: Coordinates of the blocks, in the order of their warps; shape (blocks, 3). The first
            one counts.

    Returns:
        By the position of a store of global memory in the program: the share of its sectors that
        the warp's store before it went to, of others that the second one before it went to, and so
        on; `FARTHEST_STORE` shares. Stores that repeat none are left out.
    """
    is_store = np.array(
        [step.row.kind == "store" and not is_bulk_access(step.row) for step in program.steps],
        np.bool_,
    )
    index = trace.index[trace.event]
    of_first = trace.warp < trace.warps // len(blocks)
    access = np.flatnonzero(of_first & is_store[index])
    if not len(access):
        return {}
    access = access[np.lexsort((trace.event[access], trace.warp[access]))]
    count = trace.count[access]
    # The number of each store among those of its warp, large enough apart from those of others.
    number = np.arange(len(access)) + trace.warp[access] * FARTHEST_STORE
    row_number, row_warp = np.repeat(number, count), np.repeat(trace.warp[access], count)
    sector, instruction = sectors_of(trace, access), np.repeat(index[access], count)
    order = np.lexsort((row_number, sector, row_warp))
    same = np.zeros(len(order), np.bool_)
    same[1:] = (np.diff(sector[order]) == 0) & (np.diff(row_warp[order]) == 0)
    distance = np.diff(row_number[order], prepend=0)
    found = same & (distance > 0) & (distance <= FARTHEST_STORE)
    steps = len(program.steps)
    place = instruction[order][found] * FARTHEST_STORE + distance[found] - 1
    repeated = np.bincount(place, minlength=steps * FARTHEST_STORE).reshape(steps, -1)
    sectors = np.bincount(instruction, minlength=steps)
    return {
        int(at): tuple((repeated[at] / sectors[at]).tolist())
        for at in np.flatnonzero(repeated.any(axis=1))
    }
