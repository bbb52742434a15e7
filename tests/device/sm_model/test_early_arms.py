"""In which rounds of a loop the warps of a block take an arm that some of them take less often."""

from __future__ import annotations

import numpy as np
import pytest

from memlab.device.sm_model.early_arms import early_arms
from memlab.device.sm_model.flows import LEAVE, Flow
from memlab.device.sm_model.paths import warp_path

BLOCKS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
"""Head of the outer loop, of the inner one with the branch, arm, both ends, exit."""
WITH_BARRIER = np.array([False, False, False, True, False, False])


def flow(taken: int, rounds: int = 6, entries: int = 1) -> Flow:
    """A warp that takes the arm in some rounds of the loop, each time that it enters it."""
    edges = {
        (0, 1): entries,
        (1, 2): taken * entries,
        (1, 3): (rounds - taken) * entries,
        (2, 3): taken * entries,
        (3, 1): (rounds - 1) * entries,
        (3, 4): entries,
        (4, 0): entries - 1,
        (4, 5): 1,
        (5, LEAVE): 1,
    }
    counts = [entries, rounds * entries, taken * entries, rounds * entries, entries, 1]
    return Flow(BLOCKS, counts, edges, {})


def rounds_of(warps: list[Flow], barriers: np.ndarray = WITH_BARRIER) -> list[str]:
    """Of each warp, the rounds in which it takes the arm, and those in which it does not."""
    early = early_arms(warps, barriers)
    found = []
    for warp in warps:
        starts = warp_path(warp, 10**6, early=early).ranges[:, 0].tolist()
        text = "".join(map(str, starts))
        found.append(text.replace("123", "x").replace("13", ".").replace("0", "").replace("5", ""))
    return found


def test_warps_with_less_to_do_stop_early() -> None:
    assert rounds_of([flow(6), flow(3), flow(1), flow(0)]) == [
        "xxxxxx4",
        "xxx...4",
        "x.....4",
        "......4",
    ]


def test_they_do_so_each_time_that_they_enter_the_loop() -> None:
    two = [flow(6, entries=2), flow(2, entries=2)]

    assert rounds_of(two) == ["xxxxxx4xxxxxx4", "xx....4xx....4"]


@pytest.mark.parametrize(
    ("warps", "barriers"),
    [
        ([flow(2), flow(2)], WITH_BARRIER),
        ([flow(2), flow(6)], np.zeros(6, np.bool_)),
        ([flow(2), flow(6)], np.array([False] * 5 + [True])),
    ],
    ids=["equal warps", "no barrier", "a barrier behind the loop"],
)
def test_else_the_arm_is_taken_evenly(warps: list[Flow], barriers: np.ndarray) -> None:
    assert rounds_of(warps, barriers)[0] == "..x..x4"


def test_lanes_that_part_take_the_arm_early_too() -> None:
    """Some lanes of the warp take the arm in two rounds, all go past it in the other four."""
    edges = {**flow(2).edges, (1, 3): 6}
    parted = Flow(BLOCKS, flow(2).executions, edges, {})

    assert rounds_of([flow(6), parted])[1] == "xx....4"
