"""The rounds in which a block accesses memory: a barrier between two accesses begins a new one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.program.code_layout import loop_branches
from memlab.device.emulator.program.program import DecodedInstruction

IntArray = NDArray[np.int64]
_ENDLESS = 1 << 62


def number_rounds(
    steps: Sequence[DecodedInstruction], index: IntArray, run: IntArray, begins: NDArray[np.bool_]
) -> IntArray:
    """The round of each access, from 0, ascending over all blocks.

    Between an instruction and a later one of the program lie the barriers between them. From one to
    itself or an earlier one, the innermost loop around both has gone round. Where that has no
    barrier, a loop around it has, if more runs of straight code lie between than in the way through
    the innermost one, or than the least number of them between the same two.

    Args:
        steps: The program's instructions.
        index: The instruction of each access, in the order of execution, block by block; shape
            (accesses,).
        run: When it is executed, in runs of straight code; shape (accesses,).
        begins: Whether the access is the first one of a block, shape (accesses,).
    """
    if not len(index):
        return np.zeros(0, np.int64)
    pairs, pair = np.unique(np.stack([index[:-1], index[1:]], axis=1), axis=0, return_inverse=True)
    crossing = _Crossing(steps)
    most = np.array([crossing.most_runs_without(*each) for each in pairs.tolist()], np.int64)
    gap, pair = np.diff(run), pair.reshape(-1)
    least = np.full(len(pairs), _ENDLESS)
    np.minimum.at(least, pair[~begins[1:]], gap[~begins[1:]])
    most = np.where((least <= most) & (most < _ENDLESS), least, most)
    starts = np.ones(len(index), np.bool_)
    starts[1:] = (gap > most[pair]) | begins[1:]
    numbers: IntArray = starts.cumsum() - 1
    return numbers


class _Crossing:
    """Tells whether barriers lie between the executions of two instructions."""

    def __init__(self, steps: Sequence[DecodedInstruction]) -> None:
        is_barrier = [step.row.kind == "barrier" for step in steps]
        self._barriers = np.concatenate([[0], np.cumsum(is_barrier)])
        cut = np.zeros(len(steps) + 1, np.int64)
        for index, step in enumerate(steps):
            if step.target >= 0:
                cut[index + 1] = cut[step.target] = 1
        self._cuts = np.concatenate([[0], np.cumsum(cut)])
        self._loops = sorted(
            ((head, end) for head, ends in loop_branches(steps).items() for end in ends),
            key=lambda loop: loop[1] - loop[0],
        )

    def most_runs_without(self, first: int, second: int) -> int:
        """How many runs at most can lie between the two without a barrier; -1 for none."""
        if second > first:
            return -1 if self._barriers[second] > self._barriers[first] else _ENDLESS
        without = 0
        for head, end in self._loops:
            if not (head <= second and first <= end):
                continue
            behind = self._barriers[end + 1] - self._barriers[first]
            if behind or self._barriers[second] > self._barriers[head]:
                return without or -1
            cuts = self._cuts[end + 1] - self._cuts[first + 1]
            cuts += self._cuts[second + 1] - self._cuts[head]
            without = max(without, int(cuts))
        return _ENDLESS
