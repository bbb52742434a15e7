"""Where the resident blocks change, against figures worked out by hand and against a plain scan."""

from dataclasses import astuple, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.device.datasheets import loader
from memlab.device.occupancy import (
    BlockRequirements,
    block_allocation,
    compute_occupancy,
    resource_limits,
)
from memlab.device.occupancy_curves import occupancy_curve, occupancy_curves, register_budget
from memlab.errors import UsageError

RTX3070 = loader.load_datasheet("rtx3070")
H200 = loader.load_datasheet("h200")


def thresholds(properties, block, resource):
    return occupancy_curve(properties, block, resource).thresholds


def shown(threshold):
    """A threshold as value and blocks, 0 where no block fits."""
    occupancy = threshold and threshold.occupancy
    return threshold and (threshold.value, occupancy.blocks_per_sm if occupancy else 0)


def resident(properties, block):
    """The occupancy of a block; None where not even one fits."""
    try:
        return compute_occupancy(properties, block)
    except UsageError:
        return None


@pytest.mark.parametrize(
    ("device", "block", "resource", "below", "above"),
    [
        # 48 registers are 1536 a warp: 10 warps in each part of 16384, so 5 blocks of 8 warps.
        # 40 are 1280 a warp: 12 a part, 6 blocks. 49 take 56, 1792 a warp: 9 a part, 4 blocks.
        ("rtx3070", (256, 48, 0), "registers_per_thread", (40, 6), (49, 4)),
        # At 40 the 48 warp slots bind as well, so fewer registers help no more.
        ("rtx3070", (256, 40, 0), "registers_per_thread", None, (41, 5)),
        ("rtx3070", (256, 32, 0), "threads_per_block", (192, 8), (257, 5)),
        # 100 KiB over 2 blocks is 50 KiB, one of which the system keeps; over 3 it is 266 units of
        # 128 bytes.
        (
            "rtx3070",
            (64, 32, 49 * 1024),
            "shared_bytes_per_block",
            (266 * 128 - 1024, 3),
            (50177, 1),
        ),
        # 64 x 1024 registers are all there are.
        ("h200", (1024, 64, 0), "registers_per_thread", (32, 2), (65, 0)),
        ("h200", (1024, 32, 0), "threads_per_block", (672, 3), None),
        ("h200", (32, 16, 0), "registers_per_thread", None, (65, 28)),
    ],
)
def test_thresholds_worked_out_by_hand(device, block, resource, below, above):
    found = thresholds(loader.load_datasheet(device), BlockRequirements(*block), resource)
    assert (shown(found[0]), shown(found[1])) == (below, above)


@pytest.mark.parametrize(
    ("device", "threads", "shared", "registers", "division", "warps"),
    [
        # 65536 / 1536 = 42.67, but 42 take 48 and leave room for 40 of the 48 warps.
        ("rtx3070", 256, 0, 40, 42, 48),
        ("h200", 256, 0, 32, 32, 64),
        ("a100", 1024, 0, 32, 32, 64),
        ("t4", 256, 0, 64, 64, 32),
        # One block of 1024 threads: 8 warps a part, 2048 registers each, 64 a thread.
        ("rtx3070", 1024, 0, 64, 64, 32),
        # One block of one warp: what a thread may have at all.
        ("h200", 32, 200 * 1024, 255, 255, 1),
    ],
)
def test_register_budget_worked_out_by_hand(device, threads, shared, registers, division, warps):
    budget = register_budget(loader.load_datasheet(device), BlockRequirements(threads, 1, shared))
    assert astuple(budget) == (registers, division, warps)


@settings(max_examples=30, deadline=None)
@given(
    device=st.sampled_from(loader.datasheet_names()),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 64),
    shared=st.integers(0, 48 * 1024),
    resource=st.sampled_from(["threads_per_block", "registers_per_thread"]),
)
def test_thresholds_are_those_of_a_scan(device, threads, registers, shared, resource):
    properties = loader.load_datasheet(device)
    block = BlockRequirements(threads, registers, shared)
    least, most = resource_limits(properties)[resource]

    def blocks(value):
        found = resident(properties, replace(block, **{resource: value}))
        return found.blocks_per_sm if found else 0

    value, here = getattr(block, resource), blocks(getattr(block, resource))
    less = (smaller for smaller in range(value, least - 1, -1) if blocks(smaller) != here)
    more = (larger for larger in range(value, most + 1) if blocks(larger) != here)
    found = thresholds(properties, block, resource)
    values = [threshold and threshold.value for threshold in found]
    assert values == [next(less, None), next(more, None)]


@settings(max_examples=20, deadline=None)
@given(
    device=st.sampled_from(loader.datasheet_names()),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 64),
    shared=st.integers(0, 48 * 1024),
    data=st.data(),
)
def test_a_step_holds_for_every_value_in_it(device, threads, registers, shared, data):
    properties = loader.load_datasheet(device)
    block = BlockRequirements(threads, registers, shared)
    for curve in occupancy_curves(properties, block):
        steps, limits = curve.steps, resource_limits(properties)[curve.resource]
        assert (steps[0].first, steps[-1].last) == limits
        assert all(a.last + 1 == b.first for a, b in pairwise(steps))
        step = data.draw(st.sampled_from(steps))
        value = data.draw(st.integers(step.first, step.last))
        found = resident(properties, replace(block, **{curve.resource: value}))
        assert step.warps_per_sm == (found.warps_per_sm if found else 0)
        assert (step.occupancy and step.occupancy.limiter) == (found and found.limiter)


@given(threads=st.integers(1, 1024), registers=st.integers(1, 64), shared=st.integers(0, 101376))
def test_shared_thresholds_lie_where_the_blocks_change(threads, registers, shared):
    block = BlockRequirements(threads, registers, shared)
    here = compute_occupancy(RTX3070, block).blocks_per_sm
    below, above = thresholds(RTX3070, block, "shared_bytes_per_block")
    for found, step in ((below, 1), (above, -1)):
        if found:
            neighbour = compute_occupancy(
                RTX3070, BlockRequirements(threads, registers, found.value + step)
            )
            assert neighbour.blocks_per_sm == here
            assert (found.occupancy.blocks_per_sm - here) * step > 0


def test_allocation_rounds_up_and_adds_what_is_reserved():
    # 100 threads are 4 warps; 33 x 32 = 1056 registers take 5 units of 256; 1 + 1024 bytes take
    # 9 units of 128.
    assert astuple(block_allocation(RTX3070, BlockRequirements(100, 33, 1)))[:3] == (4, 1280, 1152)


def test_what_cannot_launch_has_no_occupancy():
    curve = occupancy_curve(H200, BlockRequirements(1024, 65, 0), "registers_per_thread")
    assert curve.current_step.occupancy is None
    with pytest.raises(UsageError, match="1025 threads per block"):
        register_budget(H200, BlockRequirements(1025, 1, 0))
