"""Groups of accesses by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memlab.device.emulator.models.access_groups import number_groups


def steps(*groups: tuple[int, ...], block: int = 0) -> list[Any]:
    """Instructions whose copies a block of the machine code issues in these groups."""
    return [SimpleNamespace(issue_block=block, issue_groups=each) for each in groups]


@pytest.mark.parametrize(
    ("program", "index", "rounds", "equal"),
    [
        # Two loads that one instruction waits for, and one behind it; each trip loads anew.
        (steps((1,), (1,), (2,)), [0, 1, 2, 0, 1, 2], [0] * 6, [0, 0, 1, 2, 2, 3]),
        # A loop that the machine code holds twice: its trips are together by twos.
        (steps((1, 1)), [0, 0, 0, 0, 0], [0] * 5, [0, 0, 1, 1, 2]),
        # All loads of one instruction are issued in front of those of the other.
        (steps((1, 1), (2, 2)), [0, 1, 0, 1], [0] * 4, [0, 1, 0, 1]),
        # A barrier between.
        (steps((1,), (1,)), [0, 1], [0, 1], [0, 1]),
        # The second trip skips the second load: its next execution belongs to the third trip.
        (steps((1,), (1,)), [0, 1, 0, 0, 1], [0] * 5, [0, 0, 1, 2, 2]),
        (steps((), (), block=-1), [0, 1, 0], [0] * 3, [0, 1, 2]),  # not known
    ],
)
def test_accesses_without_a_wait_between_are_a_group(
    program: list[Any], index: list[int], rounds: list[int], equal: list[int]
) -> None:
    found = number_groups(program, np.array(index), np.array(rounds)).tolist()

    assert [found.index(each) for each in found] == [equal.index(each) for each in equal]
