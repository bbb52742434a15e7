"""How far around a block the others do the same: boxes of steps from block to block.

What a block decides by a value stays decided while that value stays within bounds. A value that
moves by so much for each step in x, y and z is within them inside a polyhedron; here that is cut
down to a box, which is easy to split a grid by.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.threads import BlockBox
from memlab.device.properties import LINE_BYTES
from memlab.kernels.launch import Dim3

IntArray: TypeAlias = NDArray[np.int64]

UNBOUNDED = 2**62
"""Further than any value moves."""
_MAX_STRIDE = 2**31  # a step that moves a value by more may leave 64 bits


class DecisionRange:
    """The boxes around some blocks, cut down by each bound that is found.

    Attributes:
        low: The furthest steps back that leave all bounds kept, shape (3, blocks), at most 0.
        high: The furthest steps forth, at least 0.
        strides: Of all addresses touched, by what they move for a step in x, y and z, in bytes,
            joined by a bitwise `or`.
    """

    def __init__(self, blocks: IntArray, grid: Dim3) -> None:
        """Begin with the whole grid around each of the blocks, shape (blocks, 3)."""
        self._blocks = blocks
        self.low: IntArray = -blocks.T
        self.high: IntArray = np.array(grid)[:, None] - 1 + self.low
        self.strides = np.zeros(3, np.int64)

    def restrict(
        self, move: IntArray, least: IntArray, most: IntArray, active: NDArray[np.bool_]
    ) -> None:
        """Keep to the steps that move a value of each lane by no less and no more than bounds.

        Args:
            move: By what it moves for a step in x, y, z: shape (3, 1) or (3, lanes).
            least: Shape (lanes,); lanes of a block lie side by side.
            most: Likewise.
            active: The lanes that count.
        """
        if move.shape[1] > 1:
            move = np.where(active, move, 0)
            if not self._keeps(move, least, most, active):
                unlike, which = np.unique(move, axis=1, return_inverse=True)
                for number, column in enumerate(unlike.T):
                    alike = active & (which.reshape(-1) == number)
                    self.restrict(column[:, None], least, most, alike)
            return
        if not active.any():
            return
        count = len(self._blocks)
        lower = np.where(active, least, -UNBOUNDED).reshape(count, -1).max(axis=1)
        upper = np.where(active, most, UNBOUNDED).reshape(count, -1).min(axis=1)
        backward, forward = _change_bounds(move, self.low, self.high)
        unbound = (backward < lower) | (forward > upper) | (abs(move) > _MAX_STRIDE).any()
        for block in np.flatnonzero(unbound & active.reshape(count, -1).any(axis=1)).tolist():
            self._shrink(block, move[:, 0].tolist(), int(lower[block]), int(upper[block]))

    def confine(self, move: IntArray, active: NDArray[np.bool_]) -> None:
        """Keep to where a value does not move at all."""
        nothing = np.zeros(active.size, np.int64)
        self.restrict(move, nothing, nothing, active)

    def touch(self, move: IntArray, active: NDArray[np.bool_]) -> None:
        """Take note of addresses: all of a block's must move alike, or none."""
        lanes = np.broadcast_to(move, (3, active.size))[:, active]
        self.strides |= np.bitwise_or.reduce(lanes, axis=1)
        if move.shape[1] > 1:
            count = len(self._blocks)
            lanes, taking = move.reshape(3, count, -1), active.reshape(count, -1)
            top = np.where(taking, lanes, -UNBOUNDED).max(axis=2)
            parting = top > np.where(taking, lanes, UNBOUNDED).min(axis=2)
            self.low[parting] = self.high[parting] = 0

    def boxes(self) -> list[BlockBox]:
        """The blocks that do as each of the given ones does."""
        first, last = self._blocks.T + self.low, self._blocks.T + self.high
        return [
            (range(x, x_end + 1), range(y, y_end + 1), range(z, z_end + 1))
            for (x, y, z), (x_end, y_end, z_end) in zip(
                first.T.tolist(), last.T.tolist(), strict=True
            )
        ]

    def _keeps(
        self, move: IntArray, least: IntArray, most: IntArray, active: NDArray[np.bool_]
    ) -> bool:
        """Whether each lane stays within its bounds as far as the boxes go."""
        lanes = move.shape[1] // len(self._blocks)
        sides = (np.repeat(each, lanes, axis=1) for each in (self.low, self.high))
        backward, forward = _change_bounds(move, *sides)
        kept = (backward >= least) & (forward <= most) & (abs(move) <= _MAX_STRIDE).all(axis=0)
        return bool(kept[active].all())

    def _shrink(self, block: int, move: list[int], least: int, most: int) -> None:
        """Cut one box down, first where the value moves most."""
        low, high = self.low[:, block], self.high[:, block]
        if least > 0 or most < 0 or max(map(abs, move)) > _MAX_STRIDE:  # nothing is known
            moving = np.array(move) != 0
            low[moving] = high[moving] = 0
            return

        def ends(axis: int) -> tuple[int, int]:
            found = move[axis] * int(low[axis]), move[axis] * int(high[axis])
            return min(found), max(found)

        for axis in sorted(range(3), key=lambda axis: ends(axis)[0] - ends(axis)[1]):
            others = [ends(each) for each in range(3) if each != axis]
            down = min(least - sum(back for back, _ in others), 0)  # what they leave of the bounds
            up = max(most - sum(forth for _, forth in others), 0)
            step = move[axis]
            if step < 0:
                step, down, up = -step, -up, -down
            if step:
                low[axis] = max(int(low[axis]), -(-down // step))
                high[axis] = min(int(high[axis]), up // step)


def _change_bounds(move: IntArray, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
    """The least and the most that values move by within boxes."""
    ends = np.stack([move * low, move * high])
    return ends.min(axis=0).sum(axis=0), ends.max(axis=0).sum(axis=0)


def alignment_periods(strides: IntArray) -> Dim3:
    """After how many steps in x, y and z addresses lie in their 128-byte lines as before."""
    x, y, z = (LINE_BYTES // np.gcd(LINE_BYTES, strides)).tolist()
    return x, y, z
