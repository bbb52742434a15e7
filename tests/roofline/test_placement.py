"""Placement against figures worked out by hand, and what must hold of any placement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from example_runs import CEILINGS, H200, measurement, timed
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.datasheets.loader import load_datasheet
from memlab.device.measurement import Counters
from memlab.device.properties import DeviceProperties
from memlab.errors import UsageError
from memlab.roofline.ceilings import ceilings, ceilings_by_key
from memlab.roofline.placement import (
    bytes_moved,
    effective_bytes_per_s,
    place_measurement,
    roofline_point,
)
from memlab.roofline.run import TRAFFIC_LEVELS

# FLOPs are 2 x 2048^3 = 17 179 869 184. L1 bytes by hand:
# naive    32 x (1 073 741 824 + 524 288)                                   = 34 376 515 584
# tiled 16 32 x (134 217 728 + 524 320) + 128 x (402 653 184 + 33 554 432)  = 60 146 320 384
# tiled 32 32 x (67 108 864 + 524 288)  + 128 x (402 653 184 + 16 777 216)  = 55 851 352 064
BY_HAND = {
    "naive": {"requested": 0.25, "l1": 0.49976, "l2": 4.0467, "dram": 370.67},
    "tiled16": {"requested": 3.9844, "l1": 0.28563, "l2": 4.6892, "dram": 374.60},
    "tiled32": {"requested": 7.9380, "l1": 0.30760, "l2": 9.6219, "dram": 375.36},
}


@pytest.mark.parametrize("name", BY_HAND)
def test_intensities_are_those_worked_out_by_hand(name: str) -> None:
    placed = place_measurement(measurement(name), CEILINGS).intensity_flop_per_byte
    assert tuple(placed) == TRAFFIC_LEVELS
    assert placed["compulsory"] == pytest.approx(2048 / 6)
    for level, expected in BY_HAND[name].items():
        assert placed[level] == pytest.approx(expected, rel=3e-4)


@pytest.mark.parametrize(
    ("name", "tera_flop_per_s", "ceiling_tera_flop_per_s", "percent"),
    [
        ("naive", 5.398, 16.719, 32.3),
        ("tiled16", 8.124, 9.556, 85.0),
        ("tiled32", 9.244, 10.29, 89.8),
    ],
)
def test_the_shared_port_is_the_lowest_roof_of_the_ladder(
    name: str, tera_flop_per_s: float, ceiling_tera_flop_per_s: float, percent: float
) -> None:
    placement = place_measurement(measurement(name), CEILINGS)
    assert (placement.ceiling, placement.bound) == ("l1", "l1")
    assert placement.flop_per_s == pytest.approx(1e12 * tera_flop_per_s, rel=1e-3)
    assert placement.ceiling_flop_per_s == pytest.approx(1e12 * ceiling_tera_flop_per_s, rel=1e-3)
    assert 100 * placement.fraction_of_ceiling == pytest.approx(percent, rel=2e-3)


def test_the_effective_bandwidth_of_a_part_of_the_arrays_is_of_what_threads_request() -> None:
    """Of 8 MB of arrays, 256 threads that each read and write 4 bytes move 2048."""
    part = Counters.from_names(requested_load_bytes=1024, requested_store_bytes=1024)
    tiny = replace(measurement("row_sum"), counters=part, compulsory_bytes=1 << 23)
    assert effective_bytes_per_s(timed(tiny, 2e-6)) == pytest.approx(2048 / 2e-6)
    again = replace(tiny, counters=part.replace_named(requested_load_bytes=1 << 30))
    assert effective_bytes_per_s(timed(again, 2e-6)) == pytest.approx((1 << 23) / 2e-6)
    uncounted = replace(tiny, counters=Counters())
    assert effective_bytes_per_s(timed(uncounted, 2e-6)) == pytest.approx((1 << 23) / 2e-6)


def test_far_below_every_roof_latency_binds() -> None:
    # 32 blocks on 132 multiprocessors: 6 % of the lowest roof.
    assert place_measurement(measurement("row_sum"), CEILINGS).bound == "latency"


def test_a_kernel_without_flops_is_placed_by_its_bytes() -> None:
    copy = measurement("copy")
    placement = place_measurement(copy, CEILINGS)
    assert placement.flop_per_s == placement.ceiling_flop_per_s == 0.0
    # 17 162 496 B at 4814 GB/s are 3.565 us of 17.632 us.
    assert placement.ceiling == "dram"
    assert placement.fraction_of_ceiling == pytest.approx(0.2022, rel=1e-3)


def test_the_models_largest_bound_is_the_bound() -> None:
    tiled = measurement("tiled16", "modelled")

    def bound(**bounds_s: float) -> str:
        return place_measurement(
            replace(tiled, time=replace(tiled.time, bounds_s=bounds_s)), CEILINGS
        ).bound

    assert bound(dram=1e-5, l1=2e-3, issue=1e-3) == "l1"
    assert bound(dram=1e-5, l2=2e-4, latency=2e-3) == "latency"
    assert bound(issue=2e-3, l1=1e-3) == "issue"


def test_the_port_is_as_busy_as_its_passes_make_it() -> None:
    """Passes by hand over 132 ports at 1.98 GHz; the bytes of naive would be a third of it."""
    measured = place_measurement(measurement("naive"), CEILINGS)
    passes_s = 805_568_512 / (132 * 1.98e9)
    assert measured.busy["l1"] == pytest.approx(passes_s / 3182.672024e-6, rel=1e-4)
    assert measured.bound == "l1"

    # A modelled time's port is as busy as the model's own bound says, which few blocks raise.
    modelled = measurement("row_sum", "modelled")
    time = replace(modelled.time, bounds_s={"l1": 0.9 * modelled.time.median_s})
    placed = place_measurement(replace(modelled, time=time), CEILINGS)
    assert (placed.bound, placed.busy["l1"]) == ("l1", pytest.approx(0.9))


def test_the_port_is_at_least_as_busy_as_its_bytes_make_it() -> None:
    """Without passes the bytes decide."""
    tiled = measurement("tiled16")
    no_passes = replace(tiled, counters=replace(tiled.counters, l1_wavefronts=0))
    no_passes = replace(no_passes, time=replace(no_passes.time, bounds_s={}))
    least_s = bytes_moved(no_passes)["l1"] / ceilings_by_key(CEILINGS)["l1"].value
    placed = place_measurement(no_passes, CEILINGS)
    assert placed.busy["l1"] == pytest.approx(least_s / no_passes.time.median_s)


def test_atomics_have_their_bytes_at_each_level() -> None:
    counters = Counters.from_names(
        global_atomic_sectors=3,
        global_reduction_sectors=5,
        requested_atomic_bytes=64,
        dram_read_bytes=128,
    )
    moved = bytes_moved(replace(measurement("tiled16"), counters=counters))
    assert moved == {
        "requested": 64,
        "l1": 256,
        "l2": 256,
        "dram": 128,
        "compulsory": 3 * 4 * 2048**2,
    }


def test_a_time_below_a_physical_limit_is_kept_and_seen() -> None:
    assert (
        place_measurement(timed(measurement("tiled16"), 1e-3), CEILINGS).fraction_of_ceiling > 1.5
    )


def test_no_bytes_give_no_intensity() -> None:
    empty = replace(measurement("tiled16"), counters=Counters(), compulsory_bytes=0)
    placement = place_measurement(empty, CEILINGS)
    assert set(placement.intensity_flop_per_byte.values()) == {None}
    assert placement.ceiling == "fp32"
    assert placement.ceiling_flop_per_s == pytest.approx(66.908e12)


def test_double_precision_stands_under_its_own_peak() -> None:
    # A kernel without traffic, so that only the pipe limits it.
    fp64 = replace(
        measurement("tiled16"), counters=Counters.from_names(flop_fp64=1), compulsory_bytes=0
    )
    placement = place_measurement(fp64, CEILINGS)
    assert placement.ceiling == "fp64"
    assert placement.ceiling_flop_per_s == pytest.approx(33.454e12)


def test_a_kernel_of_integers_stands_under_the_roof_of_its_slowest_pipe() -> None:
    """An H200's pipes: 64 lanes of the ALU, 64 of IMAD and 16 of POPC, 132 SMs at 1.98 GHz."""
    roofs = ceilings(load_datasheet("h200"))
    counts = Counters.from_names(
        iop_alu=3_000_000, iop_fma=1_000_000, iop_xu=1_000_000, dram_read_bytes=1_000_000
    )
    hashing = replace(measurement("tiled16"), counters=counts, flop=0, compulsory_bytes=0)
    slowest_s = 1_000_000 / (16 * 132 * 1.98e9)

    placement = place_measurement(timed(hashing, 2 * slowest_s), roofs)
    assert placement.ceiling == "int_xu"
    assert placement.fraction_of_ceiling == pytest.approx(0.5)
    assert placement.iop_per_s == pytest.approx(5_000_000 / (2 * slowest_s))
    point = roofline_point(timed(hashing, 2 * slowest_s), placement)
    assert point.operation == "OP"
    assert point.per_s == pytest.approx(16 * 132 * 1.98e9 / 2)
    assert point.ceiling_per_s == pytest.approx(16 * 132 * 1.98e9)
    assert point.intensity["dram"] == pytest.approx(1.0)
    assert point.intensity["l2"] is None

    # Beside FLOPs they keep their pipe busy, but are no work; so do FLOPs on padding.
    mixed = replace(hashing, flop=500, counters=replace(counts, flop_fp16=1000))
    placement = place_measurement(timed(mixed, 2 * slowest_s), roofs)
    assert placement.ceiling == "dram"
    assert placement.busy["int_xu"] == pytest.approx(0.5)
    assert placement.busy["fp16_fma"] == pytest.approx(
        1000 / 133.816e12 / (2 * slowest_s), rel=1e-4
    )
    assert roofline_point(timed(mixed, 2 * slowest_s), placement).operation == "FLOP"


def test_nothing_known_to_stand_under_is_an_error() -> None:
    with pytest.raises(UsageError, match="no known bandwidth"):
        place_measurement(measurement("naive"), ())


counts = st.integers(0, 10**11)


@given(
    flop=st.integers(0, 10**15),
    sectors=counts,
    wavefronts=counts,
    l2_sectors=counts,
    dram_bytes=counts,
    slack=st.floats(1.0, 1e3),
)
def test_a_possible_time_is_never_above_the_roof(
    *, flop: int, sectors: int, wavefronts: int, l2_sectors: int, dram_bytes: int, slack: float
) -> None:
    counters = Counters.from_names(
        global_load_sectors=sectors,
        shared_load_wavefronts=wavefronts,
        l2_read_sectors=l2_sectors,
        dram_read_bytes=dram_bytes,
        flop_fp32=flop,
    )
    roof = {ceiling.key: ceiling.value for ceiling in CEILINGS}
    possible_s = slack * max(
        (32 * sectors + 128 * wavefronts) / roof["l1"],
        32 * l2_sectors / roof["l2"],
        dram_bytes / roof["dram"],
        flop / roof["fp32"],
        1e-9,
    )
    case = replace(measurement("tiled16"), flop=flop, counters=counters)
    placement = place_measurement(timed(case, possible_s), CEILINGS)
    assert placement.fraction_of_ceiling <= 1.0 + 1e-9
    assert placement.flop_per_s <= placement.ceiling_flop_per_s * (1.0 + 1e-9)
    for level in ("l1", "l2", "dram"):
        intensity = placement.intensity_flop_per_byte[level]
        # The textbook's form of the same roof.
        if intensity is not None:
            attainable = min(roof["fp32"], intensity * roof[level])
            assert placement.ceiling_flop_per_s <= attainable * (1.0 + 1e-9)


def test_ceilings_of_an_h200_by_hand() -> None:
    found = ceilings_by_key(ceilings(H200))
    for expected in CEILINGS:
        assert found[expected.key].value == pytest.approx(expected.value, rel=1e-4)
        assert found[expected.key].kind == expected.kind


def test_what_is_unknown_gives_no_ceiling() -> None:
    assert ceilings(DeviceProperties(name="bare", compute_capability=(8, 0))) == ()


def test_a_ceiling_says_where_it_comes_from() -> None:
    sources = {
        "l2_bytes_per_clock": "measured: a microbenchmark",
        "memory_clock_rate_hz": "queried: cuDeviceGetAttribute",
        "global_memory_bus_width_bits": "queried: cuDeviceGetAttribute",
    }
    found = ceilings_by_key(ceilings(replace(H200, sources=sources)))
    assert (found["l2"].provenance, found["dram"].provenance) == ("measured", "queried")
