"""Stratified sampling of a large grid: the blocks to execute, and how many each represents.

Blocks differ by position: at an edge, a guard or a partial tile changes their work. Each dimension
is cut into its first block, its last block and the middle, and at further cuts on request. Each
combination of pieces is a stratum, and the counters of its sample are scaled to its size. Counts
are exact where all blocks of a stratum do the same. Sample sizes are powers of two, so that scaling
is exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.threads import block_coordinates, cluster_places
from memlab.kernels.launch import NO_CLUSTER, Dim3

INTERIOR_SAMPLE = 16
"""Blocks of the sample of the stratum that holds the grid's center."""
EDGE_SAMPLE = 4
"""Blocks of the sample of every other stratum."""
INEXACT_SAMPLE_FACTOR = 64
"""How many times more blocks are drawn for an estimate: with 1,024 blocks, a share has a standard
error of 1.6 percentage points at most (binomial at 1/2)."""


class BlockCoordinates(Protocol):
    """Coordinates of blocks, shape (blocks, 3): an array, or an object with slices of one."""

    def __len__(self) -> int:
        """How many blocks."""
        ...

    def __getitem__(self, part: slice, /) -> NDArray[np.int64]:
        """The coordinates of some of the blocks, as an array."""
        ...


@dataclass(frozen=True)
class WholeGrid:
    """Every block of a grid in launch order (x fastest).

    Blocks that form clusters come cluster by cluster, in the launch order of these.
    A grid may have more blocks than fit in memory, so only slices become arrays.

    Attributes:
        grid: Blocks in x, y and z.
        cluster: Blocks of a cluster in x, y and z.
    """

    grid: Dim3
    cluster: Dim3 = NO_CLUSTER

    def __len__(self) -> int:
        """How many blocks."""
        return math.prod(self.grid)

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        """Coordinates of a range of the launch order."""
        order = np.arange(*part.indices(len(self)), dtype=np.int64)
        if self.cluster == NO_CLUSTER:
            return block_coordinates(order, self.grid)
        clusters, places = np.divmod(order, math.prod(self.cluster))
        first = block_coordinates(clusters, cluster_grid(self.grid, self.cluster))
        blocks: NDArray[np.int64] = first * np.array(self.cluster)
        return blocks + block_coordinates(places, self.cluster)


def cluster_grid(grid: Dim3, cluster: Dim3) -> Dim3:
    """The clusters of a grid in x, y and z."""
    x, y, z = (blocks // each for blocks, each in zip(grid, cluster, strict=True))
    return x, y, z


def blocks_of_clusters(clusters: NDArray[np.int64], cluster: Dim3) -> NDArray[np.int64]:
    """Coordinates, shape (blocks, 3), of all blocks of some clusters, cluster by cluster."""
    places = WholeGrid(cluster)[:]
    blocks: NDArray[np.int64] = clusters[:, None] * np.array(cluster) + places
    return blocks.reshape(-1, 3)


def whole_clusters(blocks: NDArray[np.int64], cluster: Dim3) -> NDArray[np.int64]:
    """Some blocks and the others of their clusters, cluster by cluster; none more than once.

    Without clusters, the blocks as they are.
    """
    if cluster == NO_CLUSTER:
        return blocks
    clusters, _ = cluster_places(blocks, cluster)
    return blocks_of_clusters(np.unique(clusters, axis=0), cluster)


@dataclass(frozen=True)
class GridPartition:
    """The partition of a grid into strata; of the grid of clusters, where blocks form some.

    Attributes:
        cuts: Coordinates in x, y and z where pieces begin. The first and last block of a dimension
            are always cut off.
        periods: After how many steps in x, y and z blocks belong to the same class again.
        exact: Whether all blocks of a stratum are known to do the same.
    """

    cuts: tuple[frozenset[int], frozenset[int], frozenset[int]] = (frozenset(),) * 3
    periods: Dim3 = (1, 1, 1)
    exact: bool = False

    def pieces(self, grid: Dim3) -> list[list[range]]:
        """The pieces of x, y and z: each combination of three is a stratum."""
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
    """Blocks of one class, with a sample of them.

    Attributes:
        blocks: Coordinates of the sample, shape (sample, 3).
        size: How many blocks of the grid the sample represents.
    """

    blocks: NDArray[np.int64]
    size: int


def center_block(grid: Dim3) -> tuple[int, int, int]:
    """The block in the center of a grid; of two in a dimension the first one."""
    return ((grid[0] - 1) // 2, (grid[1] - 1) // 2, (grid[2] - 1) // 2)


def draw_strata(
    grid: Dim3,
    seed: int,
    most: float = math.inf,
    division: GridPartition = GridPartition(exact=True),
    cluster: Dim3 = NO_CLUSTER,
) -> list[Stratum]:
    """Cut a grid into strata and draw a sample of each, without replacement.

    Args:
        grid: Blocks in x, y and z.
        seed: Seed of the random draw.
        most: Most blocks in all. Samples are halved until they are no more, or one per stratum.
        division: The strata; if they are not exact, larger samples are drawn.
        cluster: Blocks of a cluster in x, y and z: strata and samples are of whole clusters.
    """
    if cluster != NO_CLUSTER:
        each = math.prod(cluster)
        strata = draw_strata(cluster_grid(grid, cluster), seed, most / each, division)
        return [Stratum(blocks_of_clusters(s.blocks, cluster), s.size * each) for s in strata]
    interior, edge = INTERIOR_SAMPLE, EDGE_SAMPLE
    if not division.exact:
        interior, edge = interior * INEXACT_SAMPLE_FACTOR, edge * INEXACT_SAMPLE_FACTOR
    drawn = _draw_samples(grid, seed, interior, edge, division)
    while interior and sum(len(stratum.blocks) for stratum in drawn) > most:
        interior, edge = interior // 2, edge // 2  # at 0, one block per stratum is drawn
        drawn = _draw_samples(grid, seed, interior, edge, division)
    return drawn


def split_extent(extent: int, cuts: Iterable[int]) -> list[range]:
    """Cut a dimension into pieces; cuts at or beyond its ends are ignored."""
    ends = sorted({0, extent, *(cut for cut in cuts if 0 < cut < extent)})
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def van_der_corput(count: int) -> Iterator[int]:
    """Yield the numbers below a count, each once, so that the first few are evenly spread.

    This is van der Corput's sequence in base 2: counting with the bits reversed puts each number
    into the middle of the largest remaining gap.
    """
    bits = count.bit_length()
    for number in range(1 << bits):
        reversed_number = int(f"{number:0{bits}b}"[::-1], 2)
        if reversed_number < count:
            yield reversed_number


def _draw_samples(
    grid: Dim3, seed: int, interior_sample: int, edge_sample: int, division: GridPartition
) -> list[Stratum]:
    generator = np.random.default_rng(seed)
    middle = center_block(grid)
    strata = []
    for pieces in itertools.product(*division.pieces(grid)):
        size = math.prod(map(len, pieces))
        interior = all(
            piece.start <= coordinate < piece.stop
            for coordinate, piece in zip(middle, pieces, strict=True)
        )
        classes = math.prod(piece.step for piece in pieces)  # that share the sample
        wanted = max((interior_sample if interior else edge_sample) // classes, 1)
        order = generator.choice(size, _power_of_two(min(wanted, size)), replace=False)
        places = block_coordinates(np.sort(order), (len(pieces[0]), len(pieces[1]), len(pieces[2])))
        step, first = ([getattr(piece, name) for piece in pieces] for name in ("step", "start"))
        strata.append(Stratum(places * np.array(step) + np.array(first), size))
    return _merge_equal_weights(strata)


def _merge_equal_weights(strata: list[Stratum]) -> list[Stratum]:
    """Merge strata whose blocks represent equally many: they are executed and counted together."""
    by_weight: dict[float, list[Stratum]] = {}
    for stratum in strata:
        by_weight.setdefault(stratum.size / len(stratum.blocks), []).append(stratum)
    return [
        Stratum(np.concatenate([s.blocks for s in group]), sum(s.size for s in group))
        for group in by_weight.values()
    ]


def _power_of_two(number: int) -> int:
    """The largest power of two that is no more than a number."""
    return 1 << (number.bit_length() - 1)
