"""Atomic operations of many lanes: as if the lanes came one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.device.emulator.isa import integers
from memlab.device.emulator.machine.accesses import _apply_atomic

FUNCTIONS = [
    ("u4", np.add),
    ("i8", np.minimum),
    ("f4", np.add),
    ("f2", np.add),
    ("u4", np.bitwise_xor),
    ("u4", integers.increment),
]


@settings(deadline=None)
@pytest.mark.parametrize(("dtype", "function"), FUNCTIONS)
@given(
    places=st.lists(st.integers(0, 7), min_size=1, max_size=80),
    reach=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 99),
)
def test_atomics_apply_in_lane_order(
    dtype: str, function: np.ufunc, places: list[int], reach: int, seed: int
) -> None:
    """Few places are worked through by place, many by lane: both give what one by one gives."""
    where = np.array(places) % reach
    values = (np.random.default_rng(seed).random(len(where)) * 1000).astype(dtype)
    elements = np.arange(8).astype(dtype)
    expected, found = elements.copy(), np.empty(len(where), dtype)
    for lane, place in enumerate(where):
        found[lane] = expected[place]
        expected[place : place + 1] = function(expected[place : place + 1], values[lane : lane + 1])

    old = _apply_atomic(elements, where, [values], function)

    np.testing.assert_array_equal(old, found)
    np.testing.assert_array_equal(elements, expected)


@settings(deadline=None)
@given(
    places=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    compared=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    stored=st.lists(st.integers(0, 3), min_size=60, max_size=60),
)
def test_compare_and_swap_applies_in_lane_order(
    places: list[int], compared: list[int], stored: list[int]
) -> None:
    where, elements = np.array(places), np.arange(6, dtype="u4") % 4
    given_values = [np.array(each[: len(where)], "u4") for each in (compared, stored)]
    expected, found = elements.copy(), []
    for place, compare, new in zip(where, *given_values, strict=True):
        found.append(expected[place])
        if expected[place] == compare:
            expected[place] = new

    old = _apply_atomic(elements, where, given_values, integers.compare_and_swap)

    np.testing.assert_array_equal(old, found)
    np.testing.assert_array_equal(elements, expected)
