from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.emulator import sampling

grids = st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 5))


def test_blocks_come_in_launch_order() -> None:
    blocks = sampling.all_blocks((2, 3, 2))

    assert [tuple(block) for block in blocks] == [
        (x, y, z) for z in range(2) for y in range(3) for x in range(2)
    ]


@given(grids, st.integers(0, 99))
def test_strata_share_out_the_whole_grid(grid: tuple[int, int, int], seed: int) -> None:
    strata = sampling.strata(grid, seed)

    chosen = [tuple(block) for stratum in strata for block in stratum.blocks.tolist()]
    assert sum(stratum.size for stratum in strata) == math.prod(grid)
    assert len(set(chosen)) == len(chosen)
    assert all(0 <= block[axis] < grid[axis] for block in chosen for axis in range(3))
    for corner in np.ndindex(2, 2, 2):
        assert tuple(at * (extent - 1) for at, extent in zip(corner, grid, strict=True)) in chosen


@given(grids, st.integers(0, 99))
def test_a_stratum_holds_blocks_of_one_kind(grid: tuple[int, int, int], seed: int) -> None:
    """Counts that depend on the edges that a block touches come out exact."""

    def at_edges(blocks: np.ndarray) -> np.ndarray:
        return (blocks == 0) * 1 + (blocks == np.array(grid) - 1) * 2

    exact = (at_edges(sampling.all_blocks(grid)) ** 2).sum(axis=0)
    scaled = sum(
        (at_edges(stratum.blocks) ** 2).sum(axis=0) * stratum.size / len(stratum.blocks)
        for stratum in sampling.strata(grid, seed)
    )

    assert scaled == pytest.approx(exact)


@given(grids)
def test_the_centre_is_at_the_far_edge_only_of_a_grid_one_block_wide(
    grid: tuple[int, int, int],
) -> None:
    for at, extent in zip(sampling.center(grid), grid, strict=True):
        assert at < extent - 1 or extent == 1
        assert at > 0 or extent <= 2
