"""Walks of warps through tables in constant memory: lines that they read one after the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from memlab.device.emulator.machine.execution_trace import ConstantAccesses, IntArray


@dataclass(frozen=True)
class ConstantWalks:
    """The walks of a block's warps.

    Attributes:
        lines: The lines that each warp reads, numbered from 0, in order; a line that it reads
            several times running counts once.
        advances: By the position of an instruction in the program, by how many lines one execution
            of it goes on in the mean.
    """

    lines: tuple[IntArray, ...] = ()
    advances: Mapping[int, float] = field(default_factory=dict)


def constant_walks(
    accesses: ConstantAccesses, warps: int, instructions: Collection[int]
) -> ConstantWalks:
    """The walks by some instructions.

    Args:
        accesses: What the block accesses.
        warps: Its warps.
        instructions: The positions of the instructions.
    """
    chosen = np.flatnonzero(np.isin(accesses.index, list(instructions)))
    if not len(chosen):
        return ConstantWalks()
    chosen = chosen[np.argsort(accesses.warp[chosen], kind="stable")]
    index, warp, line = (
        column[chosen] for column in (accesses.index, accesses.warp, accesses.line)
    )
    is_new = np.ones(len(chosen), np.bool_)
    is_new[1:] = (np.diff(line) != 0) | (np.diff(warp) != 0)
    _, number = np.unique(line, return_inverse=True)
    size = int(index.max()) + 1
    requests = np.bincount(index, accesses.begins[chosen], size)
    new = np.bincount(index, is_new, size)
    return ConstantWalks(
        tuple(number[is_new & (warp == one)] for one in range(warps)),
        {int(at): float(new[at] / requests[at]) for at in np.flatnonzero(requests)},
    )
