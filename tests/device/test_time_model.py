from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device import time_model
from memlab.device.datasheets import loader
from memlab.device.measurement import Counters, Occupancy
from memlab.device.properties import DeviceProperties

# Pinned, so that a newer measurement of the device does not move the hand-computed figures.
H200 = replace(
    loader.load_datasheet("h200"),
    dram_achievable_fraction=0.94,
    l2_bytes_per_clock=4200.0,
    l2_write_bytes_per_clock=2100.0,
    blocks_per_clock=0.84,
    shortest_kernel_s=1.31e-6,
    l1_latency_clocks=32.0,
    l2_latency_clocks=281.0,
    dram_latency_clocks=659.0,
)
FULL = Occupancy(8, 64, 1.0, "warps", {})

counts = st.builds(
    Counters.from_names, **{name: st.integers(0, 10**12) for name in Counters.names()}
)
works = st.builds(
    time_model.LaunchWork,
    blocks=st.integers(1, 10**6),
    counters=counts,
    warp_clocks=st.floats(0, 1e7),
)


def work(blocks: int = 132, clocks: float = 0.0, **counters: int) -> time_model.LaunchWork:
    return time_model.LaunchWork(blocks, Counters.from_names(**counters), clocks)


@pytest.mark.parametrize(
    ("done", "bound", "seconds"),
    [
        # 2 x 3201 MHz x 6016 bits / 8, of which 0.94 is reached.
        (work(dram_read_bytes=4525445760000), "dram", 1.0),
        # 132 SMs x 1.98 GHz x 4 schedulers.
        (work(warp_instructions=1045440000000), "issue", 1.0),
        # 132 SMs x 1.98 GHz x 128 lanes x 2 FLOPs; half of that in FP64.
        (work(flop_fp32=66908160000000), "fp32", 1.0),
        (work(flop_fp64=33454080000000), "fp64", 1.0),
        # One wavefront of 128 bytes an SM and clock.
        (work(l1_wavefronts=261360000000), "l1", 1.0),
        # An SM's constant cache serves an address each two clocks.
        (work(constant_load_passes=130680000000), "constant cache", 1.0),
        # 4200 bytes a clock for all of the L2.
        (work(l2_read_sectors=259875000000), "l2", 1.0),
        # Half of that for what it takes, atomics too.
        (work(l2_write_sectors=129937500000), "l2", 1.0),
        (work(global_reduction_sectors=129937500000), "l2", 1.0),
        # 0.84 blocks a clock on the whole device.
        (work(blocks=1663200000), "launch", 1.0),
        # 133 blocks on 132 SMs: one SM does two.
        (work(blocks=133, flop_fp32=66908160000000), "fp32", 264 / 133),
    ],
)
def test_each_bound_is_work_over_rate(
    done: time_model.LaunchWork, bound: str, seconds: float
) -> None:
    bounds = time_model.throughput_bounds_s(done, H200)

    assert bounds.pop(bound) == pytest.approx(seconds, rel=1e-6)
    bounds.pop("launch", None)  # every launch has blocks
    assert not any(bounds.values())


def test_no_kernel_is_shorter_than_an_empty_one() -> None:
    time = time_model.model_time(work(blocks=1), FULL, H200)
    assert time.median_s == time.bounds_s["launch"] == 1.31e-6
    # 1.0 us of DRAM and as long a latency make 1.5 us: the shortest kernel decides nothing.
    longer = time_model.model_time(work(clocks=1980, dram_read_bytes=4525446), FULL, H200)
    assert longer.bounds_s["launch"] < 1e-6


def test_blocks_that_are_not_resident_wait_for_the_next_round() -> None:
    one_round = time_model.latency_bound_s(work(132 * 8, clocks=1980), FULL, H200)

    assert one_round == pytest.approx(1e-6)
    assert time_model.latency_bound_s(work(132 * 24, clocks=1980), FULL, H200) == pytest.approx(
        3e-6
    )


def test_time_lies_between_the_largest_bound_and_the_sum_of_the_two() -> None:
    done = work(132 * 8, clocks=1980, dram_read_bytes=4525446)

    assert time_model.model_time(done, FULL, H200).median_s == pytest.approx(1.5e-6, rel=1e-5)
    assert time_model.model_time(done, FULL, H200).provenance == "modelled"


@given(works)
def test_time_is_never_below_a_bound(done: time_model.LaunchWork) -> None:
    time = time_model.model_time(done, FULL, H200)

    assert time.median_s >= max(time.bounds_s.values())


@given(works, st.sampled_from(Counters.names()), st.integers(1, 10**12))
def test_more_work_is_never_faster(done: time_model.LaunchWork, name: str, more: int) -> None:
    counters = done.counters.replace_named(**{name: getattr(done.counters, name) + more})
    before = time_model.model_time(done, FULL, H200).median_s

    assert time_model.model_time(replace(done, counters=counters), FULL, H200).median_s >= before
    wavefronts = done.counters.l1_wavefronts + more
    slower = replace(
        done, counters=replace(done.counters, l1_wavefronts=wavefronts), warp_clocks=1e7
    )
    assert time_model.model_time(slower, FULL, H200).median_s >= before


@given(works, st.integers(1, 16))
def test_fewer_resident_blocks_are_never_faster(done: time_model.LaunchWork, resident: int) -> None:
    fewer, more = (replace(FULL, blocks_per_sm=count) for count in (resident, resident + 1))

    assert (
        time_model.model_time(done, fewer, H200).median_s
        >= time_model.model_time(done, more, H200).median_s
    )


def test_bounds_with_unknown_rates_are_left_out() -> None:
    unknown = DeviceProperties("unknown", (9, 0))

    time = time_model.model_time(work(dram_read_bytes=10**9, clocks=1e6), FULL, unknown)

    assert time.bounds_s == {"latency": 0.0}
    assert time_model.plain_roofline_time_s(10**9, 10**9, unknown) == 0


def test_the_baseline_is_the_plain_roofline() -> None:
    assert time_model.plain_roofline_time_s(66908160000000, 1, H200) == pytest.approx(1.0)
    assert time_model.plain_roofline_time_s(1, 4814304000000, H200) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("l1", "l2", "clocks"), [(1, 0, 32), (0, 1, 281), (0, 0, 659), (0.5, 0.5, 251)]
)
def test_load_latency_is_the_mean_over_the_levels_that_hit(
    l1: float, l2: float, clocks: float
) -> None:
    assert time_model.global_load_latency_clocks(l1, l2, H200) == pytest.approx(clocks)


def test_an_unknown_latency_is_that_of_the_level_before() -> None:
    unknown = replace(H200, l2_latency_clocks=None, dram_latency_clocks=None)
    assert time_model.global_load_latency_clocks(0, 0.5, unknown) == 32


def test_a_constant_load_waits_for_the_addresses_before_it() -> None:
    device = replace(H200, constant_latency_clocks=40.0, shared_latency_clocks=30.0)

    def latency(device: DeviceProperties, **counters: int) -> float:
        counted = Counters.from_names(**counters)
        return time_model.constant_load_latency_clocks(counted, device)

    # 9 addresses per load, one each two clocks: the last one waits for 8.
    loads = {"constant_load_requests": 10, "constant_load_passes": 90}
    assert latency(device, **loads) == 40 + 8 * 2
    assert latency(device) == 40
    assert latency(replace(device, constant_latency_clocks=None)) == 30
