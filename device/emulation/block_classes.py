"""Partitions a grid into block classes: sets of blocks that execute the same instruction counts.

Which code a block executes, and how its addresses lie in sectors and lines, follows from values
that are affine in the block's index, as long as no data from memory decides. The search works on
the grid as boxes of blocks:

1. Start with one piece, the whole grid.
2. Execute the block in the middle of every piece, following affine values only
   (`sampling/affine_values.py`). This gives, for each executed block, a box of blocks that take
   the same decisions.
3. Cut the grid along the sides of all boxes. Pieces inside a box are classified. Repeat step 2 for
   the others, until none is left.

Inside a piece, blocks still differ in how their addresses are aligned to 128-byte lines. Addresses
repeat their alignment with a period per axis, so a class is a piece taken with a stride of this
period. The counters of a class are exact from a sample of its blocks.

Of a launch with thread block clusters, classes are of whole clusters: the grid is that of clusters,
and the blocks of one are executed together.

The search gives up, and returns an inexact partition, if data decides, if classes have no boxes
(for example `x < y` or `x ^ y`) and thus need too many pieces, or if time runs out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Deadline, EmulationTimeoutError
from memlab.device.emulator.machine.threads import BlockBox
from memlab.device.emulator.sampling.affine_values import AffineValues
from memlab.device.emulator.sampling.block_sample import (
    GridPartition,
    blocks_of_clusters,
    center_block,
    cluster_grid,
    split_extent,
)
from memlab.device.emulator.sampling.data_dependence import depends_on_data
from memlab.device.emulator.sampling.decision_range import alignment_periods

if TYPE_CHECKING:
    from memlab.device.emulation.execution import Execution

MAX_PIECES = 1024
"""Pieces of the grid beyond which the search gives up."""
MAX_CLASS_BLOCKS = 256
"""Blocks executed in the search beyond which it gives up. A 3D stencil has 27 classes: the
interior, and 26 of faces, edges and corners."""
TIME_SHARE = 1 / 3
"""The share of the remaining time that the search may take; the rest is for counting."""
_MIN_BLOCKS = 32  # blocks the search may always execute: a sample takes about as many


def classify_blocks(execution: Execution, most_blocks: float) -> GridPartition:
    """Partition the grid of a launch into block classes, and reset the memory.

    Args:
        execution: The launch.
        most_blocks: The number of blocks that there is time to execute.

    Returns:
        An exact partition, or the default one, which is inexact and cuts off only the grid's ends;
        of the grid of clusters.

    Raises:
        KernelFault: As `Execution.run`.
    """
    if depends_on_data(execution.program):
        return GridPartition()
    most = max(min(most_blocks, MAX_CLASS_BLOCKS), _MIN_BLOCKS)
    launch, values, executed = execution.launch, AffineValues(execution.program), 0
    grid = cluster_grid(launch.grid, launch.cluster)
    pieces: list[BlockBox] = [(range(grid[0]), range(grid[1]), range(grid[2]))]
    deadline = Deadline(execution.deadline.left() * TIME_SHARE)
    try:
        while pieces:
            executed += len(pieces) * launch.cluster_blocks
            if executed > most:
                return GridPartition()
            middles = np.array([middle_block(piece) for piece in pieces])
            execution.follow(blocks_of_clusters(middles, launch.cluster), values, deadline)
            boxes = values.boxes
            cuts = [
                {side for box in boxes for side in _range_bounds(box[axis])} for axis in range(3)
            ]
            extents = [split_extent(extent, cuts[axis]) for axis, extent in enumerate(grid)]
            if math.prod(map(len, extents)) > MAX_PIECES:
                return GridPartition()
            x, y, z = (_contained(boxes, axis, parts) for axis, parts in enumerate(extents))
            done = (x[:, None, None] & y[:, None] & z).any(axis=-1)
            found = np.argwhere(~done).tolist()
            left: Iterator[BlockBox] = (
                (extents[0][a], extents[1][b], extents[2][c]) for a, b, c in found
            )
            pieces = [piece for piece in left if math.prod(map(len, piece)) > 1]
    except EmulationTimeoutError:
        return GridPartition()
    finally:
        execution.reset()
    sides = frozenset(cuts[0]), frozenset(cuts[1]), frozenset(cuts[2])
    partition = GridPartition(sides, alignment_periods(values.strides), exact=True)
    strata = math.prod(map(len, partition.pieces(grid)))
    most_strata = max(min(most_blocks, MAX_PIECES), 2 * _MIN_BLOCKS)
    return partition if strata * launch.cluster_blocks <= most_strata else GridPartition()


def middle_block(piece: BlockBox) -> tuple[int, int, int]:
    """Return the block in the middle of a piece of a grid."""
    x, y, z = piece
    a, b, c = center_block((len(x), len(y), len(z)))
    return x[a], y[b], z[c]


def _range_bounds(extent: range) -> tuple[int, int]:
    return extent.start, extent.stop


def _contained(boxes: Sequence[BlockBox], axis: int, parts: Sequence[range]) -> NDArray[np.bool_]:
    """Whether boxes contain parts of an axis along it, shape (parts, boxes)."""
    starts, stops = np.array([_range_bounds(box[axis]) for box in boxes]).T
    first, last = np.array([_range_bounds(part) for part in parts])[:, :, None].swapaxes(0, 1)
    contained: NDArray[np.bool_] = (starts <= first) & (last <= stops)
    return contained
