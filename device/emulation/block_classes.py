"""Finds which blocks of a grid do the same, so that a sample of each kind counts exactly.

A block runs, and says around it the box of blocks that do as it does (`emulator/moves.py`). The
grid is cut at the box's sides; of each piece that no box holds, the block in the middle is next,
until all pieces are held or there are too many: where kinds meet in a slant, or alternate, they
are not told apart.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.budget import Deadline, EmulationTimeoutError
from memlab.device.emulator.sampling.affine_values import AffineValues
from memlab.device.emulator.sampling.block_sample import GridPartition, center_block, split_extent
from memlab.device.emulator.sampling.data_dependence import depends_on_data
from memlab.device.emulator.sampling.decision_range import BlockBox, alignment_periods

if TYPE_CHECKING:
    from memlab.device.emulation.execution import Execution

MAX_PIECES = 1024
MAX_CLASS_BLOCKS = 256
"""Run to find them, at most; a stencil's corners, edges and faces are 26 kinds."""
TIME_SHARE = 1 / 3
"""Of what is left: the rest is for counting."""
_MIN_BLOCKS = 32  # however much they cost: a sample takes as many


def classify_blocks(execution: Execution, most_blocks: float) -> GridPartition:
    """Divide a launch's grid into kinds of blocks; the memory is then as it was before.

    Args:
        execution: The launch.
        most_blocks: How many blocks there is time for.

    Returns:
        A division that is exact, or where it was not found in time one that only cuts off the ends.

    Raises:
        KernelFault: As `Execution.run`.
    """
    if depends_on_data(execution.program):
        return GridPartition()
    most = max(min(most_blocks, MAX_CLASS_BLOCKS), _MIN_BLOCKS)
    grid, moves, ran = execution.launch.grid, AffineValues(execution.program), 0
    pieces: list[BlockBox] = [(range(grid[0]), range(grid[1]), range(grid[2]))]
    deadline = Deadline(execution.deadline.left() * TIME_SHARE)
    try:
        while pieces:
            ran += len(pieces)
            if ran > most:
                return GridPartition()
            execution.follow(np.array([middle_block(piece) for piece in pieces]), moves, deadline)
            boxes = moves.boxes
            cuts = [{end for box in boxes for end in _range_bounds(box[axis])} for axis in range(3)]
            cut_up = [split_extent(extent, cuts[axis]) for axis, extent in enumerate(grid)]
            if math.prod(map(len, cut_up)) > MAX_PIECES:
                return GridPartition()
            pieces = [
                (x, y, z)
                for x, y, z in itertools.product(*cut_up)
                if len(x) * len(y) * len(z) > 1
                and not any(_box_contains(box, (x, y, z)) for box in boxes)
            ]
    except EmulationTimeoutError:
        return GridPartition()
    finally:
        execution.reset()
    x, y, z = map(frozenset, cuts)
    found = GridPartition((x, y, z), alignment_periods(moves.strides), exact=True)
    strata = math.prod(map(len, found.pieces(grid)))
    return (
        found if strata <= max(min(most_blocks, MAX_PIECES), 2 * _MIN_BLOCKS) else GridPartition()
    )


def middle_block(piece: BlockBox) -> tuple[int, int, int]:
    """The block in the middle of a piece of a grid."""
    x, y, z = piece
    a, b, c = center_block((len(x), len(y), len(z)))
    return x[a], y[b], z[c]


def _range_bounds(side: range) -> tuple[int, int]:
    return side.start, side.stop


def _box_contains(box: BlockBox, piece: BlockBox) -> bool:
    return all(
        outer.start <= inner.start and inner.stop <= outer.stop
        for outer, inner in zip(box, piece, strict=True)
    )
