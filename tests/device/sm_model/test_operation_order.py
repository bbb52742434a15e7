"""A path follows the order in which a warp operates on barriers."""

from __future__ import annotations

import pytest

from memlab.device.sm_model.flows import LEAVE, Flow
from memlab.device.sm_model.operation_order import Site, guide, site_graph
from memlab.device.sm_model.paths import Path, warp_path

LONGEST = 10**6
WAIT, RELEASE = 0, 1


def text(path: Path) -> str:
    """The blocks of a path, each of them one instruction long."""
    return "".join(str(start) for start in path.ranges[:, 0])


def blocks(count: int) -> list[tuple[int, int]]:
    return [(number, number + 1) for number in range(count)]


def test_a_loop_leaves_out_what_its_first_iteration_did_not_do() -> None:
    # Block 1 waits, block 2 releases but in the first iteration, which the counts do not tell.
    edges = {(0, 1): 1, (1, 2): 3, (1, 3): 1, (2, 3): 3, (3, 1): 3, (3, LEAVE): 1}
    flow = Flow(blocks(4), [1, 4, 3, 4], edges, {})
    sites = Site(1, WAIT, is_guarded=False), Site(2, RELEASE, is_guarded=False)
    sequence = [WAIT, *[WAIT, RELEASE] * 3]

    assert text(warp_path(flow, LONGEST)) == "012312312313"
    assert text(warp_path(flow, LONGEST, sites, sequence)) == "013123123123"


def test_a_way_that_the_counts_leave_out_is_taken_for_an_operation() -> None:
    edges = {(0, 1): 1, (1, 2): 0, (1, 3): 2, (2, 3): 0, (3, 1): 1, (3, LEAVE): 1}
    flow = Flow(blocks(4), [1, 2, 0, 2], edges, {})
    sites = Site(1, WAIT, is_guarded=False), Site(2, RELEASE, is_guarded=True)

    path = warp_path(flow, LONGEST, sites, [WAIT, WAIT, RELEASE])

    assert text(path) == "013123"


def test_an_unrolled_loop_and_its_remainder_share_the_iterations() -> None:
    # Block 1 has two of them, block 2 one; five are executed.
    graph = site_graph(
        [(0, 1), (1, 3), (3, 4), (4, 5)],
        [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (2, 3), (3, LEAVE)],
        {},
        [Site(1, WAIT, False), Site(2, WAIT, False), Site(3, WAIT, False)],
    )
    found = guide(graph, [WAIT] * 5)

    # The last one is made by block 2: behind block 1, only the end would follow.
    assert [f"{mask:04b}" for mask in found.open] == [
        "0001",
        "0010",
        "0001",
        "0010",
        "0100",
        "1000",
    ]
    for block in (0, 1):
        found.enter(block)
    assert found.is_open(1, 1)
    assert not found.is_open(1, 2)
    found.enter(1)
    assert found.is_open(1, 2)
    assert not found.is_open(1, 3)


def test_executions_whose_predicate_is_off_make_no_operation() -> None:
    # The warp passes block 1 three times, and releases at the last.
    edges = {(0, 1): 1, (1, 1): 2, (1, LEAVE): 1}
    flow = Flow([(0, 1), (1, 3)], [1, 3], edges, {})
    sites = Site(1, WAIT, is_guarded=False), Site(2, RELEASE, is_guarded=True)

    path = warp_path(flow, LONGEST, sites, [WAIT, WAIT, WAIT, RELEASE])

    assert path.idle == ((RELEASE, 0), (RELEASE, 0))


def test_a_function_that_operates_returns_to_the_caller_of_that_time() -> None:
    # Blocks 0 and 1 call block 3, whose wait is followed by the release of block 2 at the last.
    edges = {(0, 1): 1, (1, 2): 1, (2, LEAVE): 1, (3, LEAVE): 2}
    flow = Flow(blocks(4), [1, 1, 1, 2], edges, {0: 3, 1: 3})
    sites = Site(3, WAIT, is_guarded=False), Site(2, RELEASE, is_guarded=False)

    path = warp_path(flow, LONGEST, sites, [WAIT, WAIT, RELEASE])

    assert text(path) == "03132"


@pytest.mark.parametrize(("sequence", "order"), [((0, 1), "0123"), ((1, 0), "0213")])
def test_lanes_that_part_operate_in_the_order_of_the_arms(
    sequence: tuple[int, int], order: str
) -> None:
    edges = {(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 1, (3, LEAVE): 1}
    flow = Flow(blocks(4), [1, 1, 1, 1], edges, {})
    sites = Site(1, 0, is_guarded=False), Site(2, 1, is_guarded=False)

    assert text(warp_path(flow, LONGEST, sites, sequence)) == order


def test_one_lane_refills_where_the_sequence_says() -> None:
    # Lane 0 alone executes block 2, in two of four iterations: the second and the third.
    edges = {(0, 1): 1, (1, 2): 2, (1, 3): 4, (2, 3): 2, (3, 1): 3, (3, LEAVE): 1}
    flow = Flow(blocks(4), [1, 4, 2, 4], edges, {})
    sites = Site(1, WAIT, is_guarded=False), Site(2, RELEASE, is_guarded=False)
    sequence = [WAIT, WAIT, RELEASE, WAIT, RELEASE, WAIT]

    assert text(warp_path(flow, LONGEST, sites, sequence)) == "01312312313"


def test_a_sequence_that_the_code_cannot_make_is_followed_as_far_as_it_can() -> None:
    flow = Flow(blocks(2), [1, 1], {(0, 1): 1, (1, LEAVE): 1}, {})
    sites = Site(0, WAIT, is_guarded=False), Site(1, RELEASE, is_guarded=False)

    assert text(warp_path(flow, LONGEST, sites, [WAIT, WAIT, RELEASE])) == "01"
