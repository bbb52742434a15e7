"""What each warp of a grid executed: how unequal the work of blocks and of their warps is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.threads import Grid
from memlab.device.properties import WARP_SIZE

MOST_WARPS = 1 << 19
"""Of a grid whose warps are noted one by one: their schedule takes about a second. More of them are
some hundreds to each place of a GPU, of which the last ones to end matter little."""
_MOST_EXCESS = 0.05  # of equal work, over the mean


def is_unequal(work: NDArray[np.int64]) -> bool:
    """Whether some blocks, or warps of theirs by turns, do more than the others.

    A few that do less, as at the edges of arrays, make no difference to when the last one ends.

    Args:
        work: The instructions of each warp, shape (blocks, warps).
    """
    excess = np.maximum(work - work.mean(axis=0), 0.0)
    return bool(np.sqrt((excess**2).mean()) > _MOST_EXCESS * work.mean())


class WarpWork:
    """The instructions of each warp of a grid, as far as its blocks have run."""

    def __init__(self, grid: Grid) -> None:
        self._extents = grid.grid
        self._warps = grid.padded_threads // WARP_SIZE
        blocks = math.prod(grid.grid)
        is_kept = blocks * self._warps <= MOST_WARPS
        self._executed = np.zeros((blocks if is_kept else 0, self._warps), np.int64)

    def note(self, blocks: NDArray[np.int64], executed: NDArray[np.int64]) -> None:
        """Note what blocks have executed; of one that ran before, the last time counts.

        Args:
            blocks: Their coordinates, shape (blocks, 3).
            executed: The instructions of each warp, block after block; others may follow.
        """
        if len(self._executed):
            x, y, z = blocks.T
            place = x + self._extents[0] * (y + self._extents[1] * z)
            counts = executed[: len(blocks) * self._warps]
            self._executed[place] = counts.reshape(-1, self._warps)

    def of_whole_grid(self) -> NDArray[np.int64] | None:
        """The instructions of each warp, shape (blocks, warps), in the order of launch.

        None where a block has not run, or there are too many to note them.
        """
        executed = self._executed
        return executed if len(executed) and executed.any(axis=1).all() else None
