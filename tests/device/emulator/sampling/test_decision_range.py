"""Boxes of steps within bounds, against trying every step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.emulator.sampling.decision_range import DecisionRange, alignment_periods

GRID = (7, 5, 4)
places = st.tuples(*(st.integers(0, extent - 1) for extent in GRID))
speeds = st.lists(st.integers(-6, 6), min_size=3, max_size=3)


@given(
    st.lists(places, min_size=1, max_size=3),
    st.lists(speeds, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(-40, 0), st.integers(0, 40)), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.booleans(),
)
def test_every_block_of_a_box_is_within_the_bounds(
    blocks: list[tuple[int, int, int]],
    moves: list[list[int]],
    bounds: list[tuple[int, int]],
    active: list[bool],
    together: bool,
) -> None:
    lanes = 4 * len(blocks)
    move = np.array([moves[0 if together else lane % len(moves)] for lane in range(lanes)]).T
    least, most = np.array(bounds[:lanes]).T
    taking = np.array(active[:lanes])
    reach = DecisionRange(np.array(blocks), GRID)

    reach.restrict(move[:, :1] if together else move, least, most, taking)

    for number, (block, box) in enumerate(zip(blocks, reach.boxes(), strict=True)):
        assert all(at in side for at, side in zip(block, box, strict=True))
        for other in itertools.product(*box):
            assert all(0 <= at < extent for at, extent in zip(other, GRID, strict=True))
            for lane in range(4 * number, 4 * number + 4):
                moved = int(move[:, lane] @ (np.array(other) - block))
                assert not taking[lane] or least[lane] <= moved <= most[lane]


@given(st.integers(0, 6), st.integers(-6, 6), st.integers(-40, 0), st.integers(0, 40))
def test_in_one_dimension_the_box_holds_every_block_within_the_bounds(
    at: int, speed: int, least: int, most: int
) -> None:
    reach = DecisionRange(np.array([[at, 2, 1]]), GRID)
    lanes = np.ones(32, np.int64)

    reach.restrict(np.array([[speed], [0], [0]]), least * lanes, most * lanes, lanes > 0)

    kept = [x for x in range(GRID[0]) if least <= speed * (x - at) <= most]
    assert reach.boxes() == [(range(kept[0], kept[-1] + 1), range(GRID[1]), range(GRID[2]))]


@given(st.lists(speeds, min_size=1, max_size=4))
def test_addresses_have_the_same_line_offset_after_a_period(moves: list[list[int]]) -> None:
    reach = DecisionRange(np.zeros((1, 3), np.int64), GRID)
    for each in moves:
        reach.record_addresses(4 * np.array(each)[:, None])

    for axis, period in enumerate(alignment_periods(reach.strides)):
        strides = [4 * each[axis] for each in moves]
        steps = next(n for n in range(1, 129) if not any(n * each % 128 for each in strides))
        assert period == steps


ANY = 2**62


@pytest.mark.parametrize("stride", [2**31, 2**31 + 1, -(2**31), -(2**31) - 1])
@pytest.mark.parametrize("lanes", [1, 2])
def test_strides_beyond_31_bits_may_overflow_and_are_not_followed(stride: int, lanes: int) -> None:
    """Of two lanes only the first changes; no bound is near."""
    found = DecisionRange(np.array([[3, 2, 1]]), GRID)
    strides = np.array([[stride], [0], [0]])
    if lanes == 2:
        strides = np.hstack([strides, np.zeros((3, 1), np.int64)])
    bounds = np.full(2, ANY)

    found.restrict(strides, -bounds, bounds, np.ones(2, np.bool_))

    x = range(GRID[0]) if abs(stride) <= 2**31 else range(3, 4)
    assert found.boxes() == [(x, range(GRID[1]), range(GRID[2]))]


@pytest.mark.parametrize(
    ("least", "most", "x", "y"),
    [
        # Along x 3 steps either way, along y 2: together up to 5, of which 4 are within.
        (-4, ANY, range(1, 7), range(5)),
        (-ANY, 4, range(6), range(5)),
        (-5, 5, range(7), range(5)),
    ],
)
def test_changes_along_several_axes_add_up(least: int, most: int, x: range, y: range) -> None:
    found = DecisionRange(np.array([[3, 2, 1]]), GRID)
    one = np.ones(1, np.int64)

    found.restrict(np.array([[1], [1], [0]]), least * one, most * one, one > 0)

    assert found.boxes() == [(x, y, range(GRID[2]))]


def test_a_value_that_is_not_within_its_bounds_keeps_the_block_alone() -> None:
    """Nothing is known then; blocks along which the value does not change stay."""
    found = DecisionRange(np.array([[3, 2, 1], [4, 4, 0]]), GRID)
    lanes = np.ones(4, np.int64)
    most = np.array([5, -1, 5, 5])

    found.restrict(np.array([[1], [0], [2]]), -9 * lanes, most, lanes > 0)

    assert found.boxes() == [
        (range(3, 4), range(GRID[1]), range(1, 2)),
        # Along x up to 4 steps back and none forward, along z at most 5 // 2 steps.
        (range(5), range(GRID[1]), range(3)),
    ]


def test_ranges_end_along_axes_on_which_the_strides_of_lanes_differ() -> None:
    """The lanes of the first block differ; of the second block only an inactive lane does."""
    found = DecisionRange(np.array([[3, 2, 1], [4, 4, 0]]), GRID)
    strides = np.array([[4, 8, 16, 64], [0, 0, 0, 0], [0, 0, 0, 0]])

    found.record_addresses(strides, np.array([True, True, True, False]))

    assert found.strides.tolist() == [4 | 8 | 16, 0, 0]
    first, second = found.boxes()
    assert first == (range(3, 4), range(GRID[1]), range(GRID[2]))
    assert second == (range(GRID[0]), range(GRID[1]), range(GRID[2]))
