"""Paths of warps have the counts that they were made from."""

from __future__ import annotations

import numpy as np

from memlab.device.sm_model.flows import LEAVE, Flow
from memlab.device.sm_model.paths import Path, warp_path

LONGEST = 10**6


def executions(path: Path, flow: Flow) -> list[int]:
    """How often a path executes each block."""
    starts = path.ranges[:, 0]
    return [int(np.sum(starts == start)) for start, _ in flow.blocks]


def test_loops_in_loops_have_their_trips() -> None:
    blocks = [(0, 4), (4, 6), (6, 9), (9, 12), (12, 13)]
    edges = {(0, 1): 1, (1, 2): 5, (2, 2): 75, (2, 3): 5, (3, 1): 4, (3, 4): 1, (4, LEAVE): 1}
    flow = Flow(blocks, [1, 5, 80, 5, 1], edges, {})

    path = warp_path(flow, LONGEST)

    assert executions(path, flow) == [1, 5, 80, 5, 1]
    inner = "".join("i" if start == 6 else "." for start, _ in path.ranges)
    assert [len(run) for run in inner.split(".") if run] == [16] * 5
    assert path.length == path.instructions


def test_both_arms_run_where_lanes_part() -> None:
    blocks = [(0, 1), (1, 2), (2, 3), (3, 4)]
    edges = {(0, 1): 1, (0, 2): 1, (1, 3): 0.5, (2, 3): 0.5, (3, LEAVE): 1}
    flow = Flow(blocks, [1, 1, 1, 1], edges, {})

    assert executions(warp_path(flow, LONGEST), flow) == [1, 1, 1, 1]


def test_a_loop_that_lanes_leave_by_turns_has_all_its_trips() -> None:
    # Lanes leave the loop in two groups, of which the mean warp has one and a half.
    edges = {(0, 1): 1, (1, 1): 237, (1, 2): 1.5, (2, LEAVE): 1}
    flow = Flow([(0, 1), (1, 2), (2, 3)], [1, 238, 1], edges, {})

    assert executions(warp_path(flow, LONGEST), flow) == [1, 238, 1]

    for back, out in ((2.25, 1), (2.9, 1.6)):
        flow = Flow([(0, 1), (1, 2), (2, 3)], [1, 3, 1], {**edges, (1, 1): back, (1, 2): out}, {})

        assert executions(warp_path(flow, LONGEST), flow) == [1, 3, 1]


def test_a_loop_ends_although_its_trips_are_counted_too_often() -> None:
    # As where one of 32 lanes leaves out the last trip, so that parts of warps seem to leave.
    edges = {(0, 1): 1, (1, 1): 392, (1, 2): 1.0003, (2, 3): 1, (3, 3): 99, (3, LEAVE): 1}
    flow = Flow([(0, 1), (1, 2), (2, 3), (3, 4)], [1, 392, 1, 100], edges, {})

    assert executions(warp_path(flow, LONGEST), flow) == [1, 392, 1, 100]


def test_a_loop_that_few_lanes_repeat_has_its_trips_and_an_arm_behind_it_is_taken() -> None:
    # Of a mean warp, some lanes repeat the loop and some make one trip; most take the arm.
    blocks = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    edges = {(0, 1): 1.1, (1, 1): 0.9, (1, 2): 1.6, (2, 3): 1.0, (2, 4): 1.1, (3, 4): 1.0}
    flow = Flow(blocks, [1.1, 2.0, 1.1, 1.0, 1.0], {**edges, (4, LEAVE): 1}, {})

    assert executions(warp_path(flow, LONGEST), flow) == [1, 2, 1, 1, 1]


def test_an_arm_is_taken_as_often_as_it_is_executed() -> None:
    blocks = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    # More warps seem to come to the arm, which is reached in no other way.
    edges = {(-1, 0): 1, (0, 1): 1, (1, 2): 13.5, (1, 3): 6, (2, 3): 9, (3, 1): 14, (3, 4): 1}
    flow = Flow(blocks, [1, 15, 9, 15, 1], {**edges, (4, LEAVE): 1}, {})

    assert executions(warp_path(flow, LONGEST), flow) == [1, 15, 9, 15, 1]


def test_a_function_returns_to_its_caller() -> None:
    blocks = [(0, 1), (1, 2), (2, 3)]
    flow = Flow(blocks, [1, 1, 1], {(0, 1): 1, (1, LEAVE): 1, (2, LEAVE): 1}, {0: 2})

    path = warp_path(flow, LONGEST)

    assert path.ranges[:, 0].tolist() == [0, 2, 1]


def test_a_long_path_is_cut() -> None:
    flow = Flow([(0, 10), (10, 11)], [1000, 1], {(0, 0): 999, (0, 1): 1, (1, LEAVE): 1}, {})

    path = warp_path(flow, 500)

    assert path.length == 500
    assert path.instructions == 10_001
