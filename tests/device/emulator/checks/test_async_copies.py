"""Asynchronous copies against a list of them."""

from typing import TypeAlias

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from memlab.device.emulator.checks.asynchronous.async_copies import AsyncCopies

LANES = 4
Step: TypeAlias = tuple[str, int, int | None]
"""What lanes do: `issue` by one lane, or `commit` or `wait` by those of a mask, but so many."""

STEPS = st.one_of(
    st.tuples(st.just("issue"), st.integers(0, LANES - 1), st.none()),
    st.tuples(st.just("commit"), st.integers(1, 2**LANES - 1), st.none()),
    st.tuples(st.just("wait"), st.integers(1, 2**LANES - 1), st.none() | st.integers(0, 2)),
)
TWO_WAITS: list[Step] = [("issue", 0, None), ("issue", 1, None), ("commit", 3, None)]
TWO_WAITS += [("issue", 0, None), ("commit", 1, None), ("wait", 3, 1), ("wait", 3, 0)]
"""The second wait completes the copy that the first left; none comes back."""


@example(TWO_WAITS)
@given(st.lists(STEPS, max_size=16))
def test_a_wait_completes_all_but_the_latest_groups_of_its_own_lanes(steps: list[Step]) -> None:
    copies = AsyncCopies(LANES)
    pending: list[tuple[int, int, int, int]] = []  # unit, mark, lane and group
    open_groups = [0] * LANES
    for number, (kind, which, but) in enumerate(steps):
        mask = [bool(which >> lane & 1) for lane in range(LANES)]
        if kind == "issue":
            units, marks, lanes = np.array([2 * number, 2 * number + 1]), [number, -number], [which]
            copies.issue(units, np.array(marks), np.array(lanes * 2))
            pending += [
                (int(unit), mark, which, open_groups[which])
                for unit, mark in zip(units, marks, strict=True)
            ]
        elif kind == "commit":
            copies.commit(np.array(mask))
            open_groups = [group + on for group, on in zip(open_groups, mask, strict=True)]
        else:
            left = 0 if but is None else 1 + but
            done = [
                copy for copy in pending if mask[copy[2]] and copy[3] <= open_groups[copy[2]] - left
            ]
            pending = [copy for copy in pending if copy not in done]
            units, marks = copies.complete(np.array(mask), but)
            assert list(zip(units.tolist(), marks.tolist(), strict=True)) == [
                (unit, mark) for unit, mark, _, _ in done
            ]
