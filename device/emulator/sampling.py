"""Which blocks of a large grid are executed, and how many each stands for.

Blocks differ by where they lie: at an edge a guard or a short tile changes what they do. Each
dimension is cut into first, middle and last; blocks at the same place form a stratum, and
counters of its sample are scaled to its size. Counts are exact where the blocks of a stratum do
the same; sample sizes are powers of two, so that scaling loses nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.kernels.launch import Dim3

INTERIOR_SAMPLE = 16
EDGE_SAMPLE = 4


@dataclass(frozen=True)
class Stratum:
    """Blocks of one kind.

    Attributes:
        blocks: Coordinates of those to execute, shape (chosen, 3).
        size: How many blocks of the grid they stand for.
    """

    blocks: NDArray[np.int64]
    size: int


def all_blocks(grid: Dim3) -> NDArray[np.int64]:
    """Coordinates of every block in launch order (x fastest), shape (blocks, 3)."""
    order = np.arange(grid[0] * grid[1] * grid[2], dtype=np.int64)
    return coordinates(order, grid)


def coordinates(order: NDArray[np.int64], grid: Dim3) -> NDArray[np.int64]:
    """Coordinates of blocks given by their place in launch order, shape (blocks, 3)."""
    x, y, _ = grid
    return np.stack([order % x, order // x % y, order // (x * y)], axis=1)


def center(grid: Dim3) -> tuple[int, int, int]:
    """A block away from every edge where there is one."""
    return (grid[0] // 2, grid[1] // 2, grid[2] // 2)


def strata(grid: Dim3, seed: int) -> list[Stratum]:
    """Cut a grid into strata and draw a sample of each; the interior comes last.

    The interior's sample begins with its centre.
    """
    generator = np.random.default_rng(seed)
    cuts = [_cut(extent) for extent in grid]
    found = []
    for pieces in itertools.product(*cuts):
        size = int(np.prod([len(piece) for piece in pieces]))
        wide = sum(len(piece) > 1 for piece in pieces)
        interior = all(grid[axis] // 2 in piece for axis, piece in enumerate(pieces))
        wanted = INTERIOR_SAMPLE if interior else EDGE_SAMPLE if wide else 1
        if interior:
            chosen = [center(grid)]
        else:
            chosen = []
        places = set(chosen)
        while len(places) < min(wanted, _power_of_two(size)):
            places.add(tuple(int(generator.choice(piece)) for piece in pieces))  # type: ignore[arg-type]
        rest = sorted(places - set(chosen))
        stratum = Stratum(np.array(chosen + rest, dtype=np.int64), size)
        found.insert(len(found) if interior else 0, stratum)
    return sorted(found, key=lambda each: tuple(each.blocks[0]) == center(grid))


def _cut(extent: int) -> list[range]:
    pieces = [range(1), range(1, extent - 1), range(max(extent - 1, 1), extent)]
    return [piece for piece in pieces if len(piece)]


def _power_of_two(number: int) -> int:
    return 1 << (number.bit_length() - 1)
