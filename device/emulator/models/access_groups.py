"""The groups of accesses that a warp issues one behind the other, without waiting for data between.

They come to the L1 together: what several of them load, the first one asks for, and the others hit,
whatever other warps load between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.program.program import DecodedInstruction

IntArray = NDArray[np.int64]


def number_groups(
    steps: Sequence[DecodedInstruction], index: IntArray, rounds: IntArray
) -> IntArray:
    """A number for each access, equal for those of a group.

    The machine code tells the groups of a basic block, which may hold several trips of a loop of
    the PTX: the n-th execution of an instruction is that by its n-th copy. Where the machine code
    is not known, each access is a group of its own.

    Args:
        steps: The program's instructions.
        index: The instruction of each access, in the order of execution; shape (accesses,).
        rounds: How often the block has waited at barriers before, ascending; the same shape.
    """
    count = len(index)
    if not count:
        return np.zeros(0, np.int64)
    block = np.array([step.issue_block for step in steps])[index]
    copies = np.array([max(len(step.issue_groups), 1) for step in steps])
    groups = np.full((len(steps), int(copies.max())), -1)
    for at, step in enumerate(steps):
        groups[at, : len(step.issue_groups)] = step.issue_groups
    begins = (np.diff(block, prepend=-2) != 0) | (np.diff(rounds, prepend=-1) != 0)
    part = begins.cumsum()  # a stay in a block of the machine code, of one trip or more
    passes, copy = np.divmod(_earlier_equals(part * len(steps) + index), copies[index])
    # An instruction that some trips skip has been executed less often than those beside it.
    passed = np.maximum.accumulate(part * count + passes)
    group = np.where(block < 0, np.arange(count), groups[index, copy])
    order = np.lexsort((group, passed))
    differs = (np.diff(passed[order]) != 0) | (np.diff(group[order]) != 0)
    numbers = np.empty(count, np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(differs)])
    return numbers


def _earlier_equals(values: IntArray) -> IntArray:
    """How many equal values lie before each one."""
    order = np.argsort(values, kind="stable")
    first = np.flatnonzero(np.diff(values[order], prepend=values[order[:1]] - 1))
    earlier = np.empty(len(values), np.int64)
    earlier[order] = np.arange(len(values)) - np.repeat(first, np.diff(first, append=len(values)))
    return earlier
