"""What threads know of each other, against one clock for each pair of them."""

from typing import TypeAlias

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from memlab.device.emulator.checks.happens_before import HappensBefore

LANES, BLOCK, START = 12, 6, 5
Step: TypeAlias = tuple[str, int]
"""`blocks` or `members` wait, those of a mask."""

STEPS = st.one_of(
    st.tuples(st.just("blocks"), st.integers(1, 2 ** (LANES // BLOCK) - 1)),
    st.tuples(st.just("members"), st.integers(1, 2**LANES - 1)),
)
PASSED_ON: list[Step] = [("members", 0b011), ("members", 0b110), ("blocks", 2), ("members", 0b11)]
"""Lane 2 learns of lane 0 from lane 1."""


@example(PASSED_ON, 3)
@example([("members", 0b101101_101101)], 6)
@given(st.lists(STEPS, max_size=10), st.sampled_from([0, 2, 3, 6]))
def test_a_barrier_passes_on_all_that_any_member_knew(steps: list[Step], group: int) -> None:
    order = HappensBefore(LANES, BLOCK, group, START)
    every = range(LANES)
    known = [[START] * LANES for _ in every]
    whole = [START] * LANES  # until when a lane knows all of its block
    for kind, which in steps:
        order.time += 1
        if kind == "blocks":
            mask = [bool(which >> block & 1) for block in range(LANES // BLOCK)]
            order.synchronize_blocks(np.array(mask))
            for lane in every:
                if mask[lane // BLOCK]:
                    known[lane], whole[lane] = [order.time] * LANES, order.time
        elif group:
            chosen = [lane for lane in every if which >> lane & 1]
            order.synchronize(np.array([lane in chosen for lane in every]))
            assert order.time > START
            for start in range(0, LANES, group):
                members = [lane for lane in chosen if start <= lane < start + group]
                for other in range(start, start + group) if members else ():
                    latest = max(known[member][other] for member in members)
                    for member in members:
                        known[member][other] = order.time if other in members else latest
    pairs = [(one, two) for one in every for two in every if one // BLOCK == two // BLOCK]
    lanes, others = np.array(pairs).T
    assert order.pairwise_clock(lanes, others).tolist() == [known[one][two] for one, two in pairs]
    for lane in every:
        first = lane // group * group if group else 0
        assert order.newer_clocks(lane) == [
            (other, known[lane][other])
            for other in range(first, first + group)
            if known[lane][other] > whole[lane]
        ]


def test_lanes_are_split_by_group() -> None:
    order = HappensBefore(96, 96, 32, 0)
    lanes = np.array([0, 31, 32, 33, 64])
    assert [each.tolist() for each in order.groups(lanes)] == [[0, 31], [32, 33], [64]]
