"""Boundary checks: the nearest sizes without any, and what is wasted against them."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.measurement import Counters
from memlab.errors import UsageError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch
from memlab.roofline.analysis.boundary import (
    BoundaryCase,
    BoundaryCost,
    edge_case,
    nearest_multiples,
)
from memlab.roofline.reports.analysis_text import boundary_rows, boundary_text

LIMITS = Limits("test")


def nearest(kernel: str, **parameters: int) -> object:
    def prepare(values: object) -> Launch:
        return find_kernel(kernel).prepare(values, LIMITS)  # type: ignore[arg-type]

    return nearest_multiples(dict(prepare(parameters).parameters), prepare)


@pytest.mark.parametrize(
    ("kernel", "parameters", "lower", "upper"),
    [
        ("naive", {"width": 100}, {"width": 96}, {"width": 112}),
        ("tiled", {"width": 100, "tile": 25}, None, None),
        ("tiled", {"m": 33, "k": 5, "n": 64}, {"m": 32, "n": 64}, {"m": 48, "n": 64}),
        ("coarsened", {"width": 100}, {"width": 64}, {"width": 128}),
        ("row-sum", {"width": 1000}, {"width": 768}, {"width": 1024}),
        ("misaligned", {"n": 1000}, {"n": 768}, {"n": 1024}),
    ],
)
def test_the_nearest_multiples(
    kernel: str,
    parameters: dict[str, int],
    lower: dict[str, int] | None,
    upper: dict[str, int] | None,
) -> None:
    found = nearest(kernel, **parameters)
    if lower is None:
        assert found is None
        return
    assert isinstance(found, tuple)
    for sizes, wanted in zip(found, (lower, upper), strict=True):
        assert wanted is not None
        assert {name: sizes[name] for name in wanted} == wanted


@given(width=st.integers(1, 300), tile=st.integers(1, 32))
def test_multiples_of_the_tile(width: int, tile: int) -> None:
    found = nearest("tiled", width=width, tile=tile)
    if width % tile == 0:
        assert found is None
        return
    assert isinstance(found, tuple)
    lower, upper = found
    below = width // tile * tile
    assert lower == ({"width": below, "tile": tile} if below else None)
    assert upper == {"width": below + tile, "tile": tile}


def test_there_may_be_no_larger_multiple() -> None:
    def prepare(values: Any) -> Any:  # blocks of 16; sizes from 21 to 8000 are refused
        if 20 < values["n"] <= 8000:
            raise UsageError("too large")
        return SimpleNamespace(grid=(-(-values["n"] // 16), 1, 1))

    assert nearest_multiples({"n": 20}, prepare) == ({"n": 16}, None)
    assert nearest_multiples({"n": 16}, prepare) is None


def _case(size: int, slots: int, sectors: int) -> BoundaryCase:
    return BoundaryCase({"width": size, "tile": 16}, 0, slots, 0, 0, sectors, work=size)


def test_waste_is_what_the_neighbours_rate_would_save() -> None:
    """At 10 slots a unit of work 100 would cost 1000 and costs 1250: a fifth is wasted."""
    cost = BoundaryCost(_case(100, 1250, 400), _case(96, 960, 384), _case(112, 1120, 448))
    for other in (cost.lower, cost.upper):
        assert other is not None
        assert cost.wasted_lanes(other) == pytest.approx(0.2)
        assert cost.wasted_sectors(other) == 0.0
    assert boundary_rows(cost)[0] == ("width 96", "width 100", "width 112")
    assert "against width 96, 20.0% of the lane slots and 0.0% of the sectors" in boundary_text(
        cost
    )


def test_a_case_counts_lanes_and_sectors() -> None:
    launch = find_kernel("naive").prepare({"width": 10, "tile": 4}, LIMITS)
    counters = Counters.from_names(
        warp_instructions=3,
        thread_instructions=90,
        global_load_sectors=5,
        global_store_sectors=2,
        flop_fp32=8,
    )
    case = edge_case(launch, counters)
    assert (case.threads, case.lane_slots, case.lanes_off, case.sectors) == (144, 96, 6, 7)
    assert (case.flop_executed, case.work) == (8, 2000)


def test_the_work_of_a_copy_is_its_compulsory_bytes() -> None:
    launch = find_kernel("transpose").prepare({"width": 10, "height": 4}, LIMITS)
    assert edge_case(launch, Counters()).work == 2 * 4 * 40


def test_flops_of_the_tensor_cores_count_at_the_edge() -> None:
    launch = find_kernel("tensor-fp16").prepare({"width": 100}, LIMITS)
    counters = Counters.from_names(flop_tensor_fp16=4096, flop_fp32=2)
    assert edge_case(launch, counters).flop_executed == 4098
