from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.emulator.sampling import block_sample

grids = st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 5))


def test_blocks_come_in_launch_order() -> None:
    blocks = block_sample.WholeGrid((2, 3, 2))[:]

    assert [tuple(block) for block in blocks] == [
        (x, y, z) for z in range(2) for y in range(3) for x in range(2)
    ]


@given(grids, st.integers(0, 99))
def test_strata_partition_the_grid(grid: tuple[int, int, int], seed: int) -> None:
    strata = block_sample.draw_strata(grid, seed)

    chosen = [tuple(block) for stratum in strata for block in stratum.blocks.tolist()]
    assert sum(stratum.size for stratum in strata) == math.prod(grid)
    assert len(set(chosen)) == len(chosen)
    assert all(0 <= block[axis] < grid[axis] for block in chosen for axis in range(3))
    for corner in np.ndindex(2, 2, 2):
        assert tuple(at * (extent - 1) for at, extent in zip(corner, grid, strict=True)) in chosen


@given(grids, st.integers(0, 99))
def test_a_stratum_holds_blocks_of_one_class(grid: tuple[int, int, int], seed: int) -> None:
    """Counts that depend on the edges that a block touches come out exact."""

    def at_edges(blocks: np.ndarray) -> np.ndarray:
        return (blocks == 0) * 1 + (blocks == np.array(grid) - 1) * 2

    exact = (at_edges(block_sample.WholeGrid(grid)[:]) ** 2).sum(axis=0)
    scaled = sum(
        (at_edges(stratum.blocks) ** 2).sum(axis=0) * stratum.size / len(stratum.blocks)
        for stratum in block_sample.draw_strata(grid, seed)
    )

    assert scaled == pytest.approx(exact)


@given(grids)
def test_the_centre_is_at_the_far_edge_only_of_a_grid_one_block_wide(
    grid: tuple[int, int, int],
) -> None:
    for at, extent in zip(block_sample.center_block(grid), grid, strict=True):
        assert at < extent - 1 or extent == 1
        assert at > 0 or extent <= 2


@given(st.integers(1, 500))
def test_the_first_numbers_are_evenly_spread(count: int) -> None:
    order = list(block_sample.van_der_corput(count))

    assert sorted(order) == list(range(count))
    for few in (count // 4, count // 2):
        chosen = sorted(order[:few])
        gaps = np.diff([*chosen, chosen[0] + count]) if chosen else np.zeros(1)
        assert gaps.max() <= 4 * count / max(few, 1)


def test_a_grid_larger_than_memory_can_be_sliced() -> None:
    grid = block_sample.WholeGrid((10**5, 10**4, 60))

    assert len(grid) == 6 * 10**10
    assert grid[10**9 + 7 : 10**9 + 9].tolist() == [[7, 0, 1], [8, 0, 1]]
    assert grid[len(grid) - 1 : len(grid) + 5].tolist() == [[10**5 - 1, 10**4 - 1, 59]]


def test_van_der_corputs_order_by_hand() -> None:
    assert list(block_sample.van_der_corput(8)) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert list(block_sample.van_der_corput(5)) == [0, 4, 2, 1, 3]
    assert list(block_sample.van_der_corput(1)) == [0]
    assert list(block_sample.van_der_corput(0)) == []


@pytest.mark.parametrize(
    ("grid", "most", "sampled"),
    [
        # The ends and 16 of the middle; then half of these until they are few enough.
        ((100, 1, 1), math.inf, 18),
        ((100, 1, 1), 18, 18),
        ((100, 1, 1), 17, 10),
        ((100, 1, 1), 3, 3),
        ((100, 1, 1), 0, 3),
        # 16 of the middle, 4 of each side, and 4 corners.
        ((100, 100, 1), math.inf, 36),
        ((100, 100, 1), 35, 8 + 4 * 2 + 4),
        ((100, 100, 1), 10, 2 + 4 + 4),
        ((100, 100, 1), 9, 9),
        ((100, 100, 1), 8, 9),
        ((2, 1, 1), math.inf, 2),
    ],
)
def test_samples_are_halved_to_the_limit_but_every_stratum_keeps_a_block(
    grid: tuple[int, int, int], most: float, sampled: int
) -> None:
    strata = block_sample.draw_strata(grid, 0, most)
    assert sum(len(stratum.blocks) for stratum in strata) == sampled
    assert sum(stratum.size for stratum in strata) == math.prod(grid)


def test_blocks_of_inexact_strata_are_sampled_64_times_as_densely() -> None:
    division = block_sample.GridPartition()
    for grid in [(10_000, 1, 1), (1, 1, 10_000)]:
        strata = block_sample.draw_strata(grid, 0, 5000, division)
        assert sorted(len(stratum.blocks) for stratum in strata) == [2, 1024]


def test_cuts_and_periods_make_the_strata() -> None:
    """Blocks 0 to 19, cut at 8: two classes of each middle piece, by turns."""
    cuts = frozenset({8, 25}), frozenset[int](), frozenset[int]()
    division = block_sample.GridPartition(cuts, (2, 1, 1), exact=True)
    pieces, *others = division.pieces((20, 1, 1))
    assert pieces == [
        range(1),
        range(1, 8, 2),
        range(2, 8, 2),
        range(8, 19, 2),
        range(9, 19, 2),
        range(19, 20),
    ]
    assert others == [[range(1)], [range(1)]]
    strata = block_sample.draw_strata((20, 1, 1), 0, division=division)
    assert sum(stratum.size for stratum in strata) == 20
    for stratum in strata:
        for x, y, z in stratum.blocks.tolist():
            assert (y, z) == (0, 0)
            assert any(x in piece for piece in pieces)
