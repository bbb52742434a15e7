"""Which blocks of a large grid are executed, and how many each stands for.

Blocks differ by where they lie: at an edge a guard or a short tile changes what they do. Each
dimension is cut into first, middle and last, and wherever else it is said to be; blocks at the
same place form a stratum, and counters of its sample are scaled to its size. Counts are exact
where the blocks of a stratum do the same; sample sizes are powers of two, so that scaling loses
nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.threads import block_coordinates
from memlab.kernels.launch import Dim3

INTERIOR_SAMPLE = 16
EDGE_SAMPLE = 4
INEXACT_SAMPLE_FACTOR = 64
"""Times as many make an estimate: of 1,024 blocks a share is known to within 1.6% (one standard
deviation of a binomial at 1/2)."""


class BlockCoordinates(Protocol):
    """Coordinates of blocks, shape (blocks, 3): an array, or what gives slices of one."""

    def __len__(self) -> int:
        """How many blocks."""
        ...

    def __getitem__(self, part: slice, /) -> NDArray[np.int64]:
        """Some of them, as an array."""
        ...


@dataclass(frozen=True)
class WholeGrid:
    """Every block of a grid in launch order (x fastest).

    A grid may have more blocks than memory holds numbers: only slices become arrays.
    """

    grid: Dim3

    def __len__(self) -> int:
        """How many blocks."""
        return math.prod(self.grid)

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        """Coordinates of the blocks from one place in launch order to another."""
        return block_coordinates(np.arange(*part.indices(len(self)), dtype=np.int64), self.grid)


@dataclass(frozen=True)
class GridPartition:
    """How a grid is divided into strata.

    Attributes:
        cuts: For x, y and z, where pieces begin; the ends are cut off in any case.
        periods: For x, y and z, after how many steps blocks are of one kind again.
        exact: Whether the blocks of a stratum are known to do the same.
    """

    cuts: tuple[frozenset[int], frozenset[int], frozenset[int]] = (frozenset(),) * 3
    periods: Dim3 = (1, 1, 1)
    exact: bool = False

    def pieces(self, grid: Dim3) -> list[list[range]]:
        """The pieces of x, y and z whose products are the strata."""
        return [
            [
                range(piece.start + first, piece.stop, min(period, len(piece)))
                for piece in split_extent(extent, {1, extent - 1, *cuts})
                for first in range(min(period, len(piece)))
            ]
            for extent, cuts, period in zip(grid, self.cuts, self.periods, strict=True)
        ]


@dataclass(frozen=True)
class Stratum:
    """Blocks of one kind.

    Attributes:
        blocks: Coordinates of those to execute, shape (chosen, 3).
        size: How many blocks of the grid they stand for.
    """

    blocks: NDArray[np.int64]
    size: int


def center_block(grid: Dim3) -> tuple[int, int, int]:
    """A block away from every edge; where there is none, not at the far one."""
    return ((grid[0] - 1) // 2, (grid[1] - 1) // 2, (grid[2] - 1) // 2)


def draw_strata(
    grid: Dim3,
    seed: int,
    most: float = math.inf,
    division: GridPartition = GridPartition(exact=True),
) -> list[Stratum]:
    """Cut a grid into strata and draw a sample of each, without repetition.

    Args:
        grid: Blocks in x, y, z.
        seed: Of the draw.
        most: Blocks in all; samples are halved until they are no more, or one a stratum.
        division: What strata there are; of those that are not exact more blocks are drawn.
    """
    interior, edge = INTERIOR_SAMPLE, EDGE_SAMPLE
    if not division.exact:
        interior, edge = interior * INEXACT_SAMPLE_FACTOR, edge * INEXACT_SAMPLE_FACTOR
    drawn = _draw_samples(grid, seed, interior, edge, division)
    while interior > 1 and sum(len(each.blocks) for each in drawn) > most:
        interior, edge = interior // 2, max(edge // 2, 1)
        drawn = _draw_samples(grid, seed, interior, edge, division)
    return drawn


def split_extent(extent: int, cuts: Iterable[int]) -> list[range]:
    """Cut a dimension into pieces; cuts at its ends are none."""
    ends = sorted({0, extent, *(each for each in cuts if 0 < each < extent)})
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def van_der_corput(count: int) -> Iterator[int]:
    """Give the numbers below a count, each once, so that the first few lie evenly among all.

    Counting with the bits reversed does that (van der Corput's sequence): each falls into the
    middle of the largest gap that is left.
    """
    bits = (count - 1).bit_length()
    for number in range(1 << bits):
        place = int(f"{number:0{bits}b}"[::-1], 2) if bits else 0
        if place < count:
            yield place


def _draw_samples(
    grid: Dim3, seed: int, interior_sample: int, edge_sample: int, division: GridPartition
) -> list[Stratum]:
    generator = np.random.default_rng(seed)
    middle = center_block(grid)
    found = []
    for pieces in itertools.product(*division.pieces(grid)):
        size = math.prod(map(len, pieces))
        interior = all(
            piece.start <= at < piece.stop for at, piece in zip(middle, pieces, strict=True)
        )
        kinds = math.prod(piece.step for piece in pieces)
        wanted = max((interior_sample if interior else edge_sample) // kinds, 1)
        order = generator.choice(size, _power_of_two(min(wanted, size)), replace=False)
        places = block_coordinates(np.sort(order), (len(pieces[0]), len(pieces[1]), len(pieces[2])))
        step, first = ([getattr(piece, name) for piece in pieces] for name in ("step", "start"))
        found.append(Stratum(places * np.array(step) + np.array(first), size))
    return _merge_equal_weights(found)


def _merge_equal_weights(strata: list[Stratum]) -> list[Stratum]:
    """Join those whose blocks stand for as many: they are counted, and so executed, together."""
    alike: dict[float, list[Stratum]] = {}
    for each in strata:
        alike.setdefault(each.size / len(each.blocks), []).append(each)
    return [
        Stratum(np.concatenate([each.blocks for each in group]), sum(each.size for each in group))
        for group in alike.values()
    ]


def _power_of_two(number: int) -> int:
    return 1 << (number.bit_length() - 1)
