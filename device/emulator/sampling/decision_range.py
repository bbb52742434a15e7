"""Decision ranges: boxes of blocks around a block within which all decisions are the same.

A decision by a value stays the same while the value stays within bounds. For a value with a
constant stride in x, y and z, the blocks within the bounds form a polyhedron. It is cut down to a
box, because a grid is easily split along boxes.
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
"""More than any value changes."""
_MAX_STRIDE = 2**31  # larger strides may overflow 64 bits


class DecisionRange:
    """The boxes around some blocks, cut down by one bound after the other.

    Attributes:
        low: The furthest steps of the block index backward within all bounds, shape (3, blocks);
            0 or negative.
        high: The furthest steps forward, shape (3, blocks); 0 or positive.
        strides: The strides of all addresses accessed, in bytes per step in x, y and z, combined
            by a bitwise or; shape (3,).
    """

    def __init__(self, blocks: IntArray, grid: Dim3) -> None:
        """Begin with the whole grid as the box of each block; `blocks` has shape (blocks, 3)."""
        self._blocks = blocks
        self.low: IntArray = -blocks.T
        self.high: IntArray = np.array(grid)[:, None] - 1 + self.low
        self.strides = np.zeros(3, np.int64)
        self._changes: dict[bytes, tuple[int, int]] = {}  # of values in the present boxes

    def holds(self, stride: IntArray, least: int, most: int) -> bool:
        """Whether a value of this stride, shape (3, 1), changes by an amount within bounds."""
        key = stride.tobytes()
        if key not in self._changes:
            backward, forward = _change_bounds(stride, self.low, self.high)
            unknown = (abs(stride) > _MAX_STRIDE).any()
            change = -UNBOUNDED * 2 if unknown else int(backward.min()), int(forward.max())
            self._changes[key] = change
        back, forth = self._changes[key]
        return least <= back and forth <= most

    def restrict(
        self, stride: IntArray, least: IntArray, most: IntArray, active: NDArray[np.bool_]
    ) -> None:
        """Restrict the boxes to blocks for which a value changes by an amount within bounds.

        Args:
            stride: Stride of the value in x, y and z: shape (3, 1) or (3, lanes).
            least: Lower bound of each lane's change, shape (lanes,). The lanes of a block are
                contiguous.
            most: Upper bound of each lane's change, shape (lanes,).
            active: The lanes that have the value, as a mask.
        """
        if stride.shape[1] > 1:
            stride = np.where(active, stride, 0)
            if not self._is_within(stride, least, most, active):
                distinct, index = np.unique(stride, axis=1, return_inverse=True)
                for number, column in enumerate(distinct.T):
                    lanes = active & (index.reshape(-1) == number)
                    self.restrict(column[:, None], least, most, lanes)
            return
        shape = len(self._blocks), -1
        lower = np.where(active, least, -UNBOUNDED).reshape(shape).max(axis=1)
        upper = np.where(active, most, UNBOUNDED).reshape(shape).min(axis=1)
        backward, forward = _change_bounds(stride, self.low, self.high)
        unbound = (backward < lower) | (forward > upper) | (abs(stride) > _MAX_STRIDE).any()
        if not unbound.any():
            return
        self._changes.clear()
        for block in np.flatnonzero(unbound & active.reshape(shape).any(axis=1)).tolist():
            self._shrink(block, stride[:, 0].tolist(), int(lower[block]), int(upper[block]))

    def require_unchanged(self, stride: IntArray, active: NDArray[np.bool_]) -> None:
        """Restrict the boxes to blocks for which a value does not change."""
        zero = np.zeros(active.size, np.int64)
        self.restrict(stride, zero, zero, active)

    def record_addresses(self, stride: IntArray, active: NDArray[np.bool_] | None = None) -> None:
        """Record strides of addresses; where a block's lanes differ, restrict its box to itself.

        Args:
            stride: The strides, shape (3, 1) or (3, lanes).
            active: The lanes that have them, as a mask; None where all lanes have the same.
        """
        if active is None:
            self.strides |= stride[:, 0]
            return
        self.strides |= np.bitwise_or.reduce(stride[:, active], axis=1)
        lanes = stride.reshape(3, len(self._blocks), -1)
        taking = active.reshape(len(self._blocks), -1)
        top = np.where(taking, lanes, -UNBOUNDED).max(axis=2)
        differs = top > np.where(taking, lanes, UNBOUNDED).min(axis=2)
        self.low[differs] = self.high[differs] = 0
        self._changes.clear()

    def boxes(self) -> list[BlockBox]:
        """The box of each block."""
        first, last = self._blocks.T + self.low, self._blocks.T + self.high
        return [
            (range(x, x_end + 1), range(y, y_end + 1), range(z, z_end + 1))
            for (x, y, z), (x_end, y_end, z_end) in zip(
                first.T.tolist(), last.T.tolist(), strict=True
            )
        ]

    def _is_within(
        self, stride: IntArray, least: IntArray, most: IntArray, active: NDArray[np.bool_]
    ) -> bool:
        """Whether the changes of all lanes are within their bounds for all blocks of the boxes."""
        lanes = active.size // len(self._blocks)  # of a block
        low, high = (np.repeat(side, lanes, axis=1) for side in (self.low, self.high))
        backward, forward = _change_bounds(stride, low, high)
        kept = (backward >= least) & (forward <= most) & (abs(stride) <= _MAX_STRIDE).all(axis=0)
        return bool(kept[active].all())

    def _shrink(self, block: int, stride: list[int], least: int, most: int) -> None:
        """Cut one box down, first along the axis where the value changes most."""
        low, high = self.low[:, block], self.high[:, block]
        if least > 0 or most < 0 or max(map(abs, stride)) > _MAX_STRIDE:  # nothing is known
            changing = np.array(stride) != 0
            low[changing] = high[changing] = 0
            return

        def ends(axis: int) -> tuple[int, int]:
            changes = stride[axis] * int(low[axis]), stride[axis] * int(high[axis])
            return min(changes), max(changes)

        for axis in sorted(range(3), key=lambda axis: ends(axis)[0] - ends(axis)[1]):
            others = [ends(other) for other in range(3) if other != axis]
            # The part of the bounds that the other axes leave.
            down = min(least - sum(back for back, _ in others), 0)
            up = max(most - sum(forth for _, forth in others), 0)
            step = stride[axis]
            if step < 0:
                step, down, up = -step, -up, -down
            if step:
                low[axis] = max(int(low[axis]), -(-down // step))
                high[axis] = min(int(high[axis]), up // step)


def _change_bounds(stride: IntArray, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
    """The least and the greatest change of values within boxes."""
    a, b = stride * low, stride * high
    return np.minimum(a, b).sum(axis=0), np.maximum(a, b).sum(axis=0)


def alignment_periods(strides: IntArray) -> Dim3:
    """After how many steps in x, y and z addresses return to the same offset in a 128-byte line."""
    x, y, z = (LINE_BYTES // np.gcd(LINE_BYTES, strides)).tolist()
    return x, y, z
