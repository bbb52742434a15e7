"""From samples whose constants are known back to these constants."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memlab.device.datasheets import loader
from memlab.device.datasheets.writer import datasheet_text
from memlab.device.gpu.calibration.calibrate import NOT_MEASURED, datasheet
from memlab.device.gpu.calibration.clusters import joined
from memlab.device.gpu.calibration.figures import figures_from_samples, line_through
from memlab.device.gpu.calibration.records import RawSample
from memlab.device.properties import known_figures, peak_bandwidth_bytes_per_s, provenance

DATA = Path(__file__).parents[3] / "data"
H200 = loader.load_datasheet("h200")
CLOCK_HZ = 2e9
SMS = H200.multiprocessor_count
PEAK = peak_bandwidth_bytes_per_s(H200)
GENERATOR = np.random.default_rng(5)


def several(series, key, value, spread=0.01, count=9):
    """Samples around a value; one of them is far off, as after an interruption."""
    values = value * (1 + spread * GENERATOR.uniform(-1, 1, count))
    values[count // 2] = value
    return [RawSample(series, key, float(x)) for x in (*values, 40 * value, value / 40)]


def figures(samples):
    found, failures = figures_from_samples(samples, H200)
    assert failures == ()
    return found


def test_rates_per_clock_are_medians():
    found = figures(
        [
            *several("pipe_lanes_per_clock", "fma", 127.0),
            *several("pipe_lanes_per_clock", "mufu", 16.0),
            *several("shared_lanes_per_clock", "", 31.0),
            *several("l1_lanes_per_clock", "", 15.9),
            *several("issued_per_clock", "", 3.9),
            *several("barrier_clocks", "8", 28.23, spread=0),
            *several("barrier_clocks", "32", 76.26, spread=0),
        ]
    )
    lanes = found["pipe_lanes_per_clock_per_sm"]
    assert lanes == {"fma": 128, "mufu": 16, "lsu": 32, "ldg": 16}  # but for the other instructions
    assert found["issue_slots_per_clock_per_sm"] == 4
    assert found["barrier_latency_by_warps_clocks"] == {"8": 28, "32": 76}
    assert found["barrier_latency_clocks"] == 28


def test_a_latency_does_not_include_reading_the_clock():
    reading, deviation = 25.0, 90.0
    misses = np.random.default_rng(1).normal(700 + reading, deviation, 20_000)
    found = figures(
        [
            RawSample("chase_clocks", "l1", 32.0),
            *(RawSample("l1_hit_clocks", "1", 290.0 + reading) for _ in range(25)),  # cold
            *(RawSample("l1_hit_clocks", "1", 32.0 + reading) for _ in range(75)),
            *(RawSample("dram_miss_clocks", "1", float(value)) for value in misses),
            *(RawSample("dram_miss_clocks", "32", 1100 + reading) for _ in range(100)),
            *(RawSample("l2_hit_clocks", "1", 370 + reading) for _ in range(100)),
        ]
    )
    by_sectors = found["dram_latency_by_sectors_clocks"]
    assert by_sectors == pytest.approx({"1": 700, "32": 1100}, rel=0.01)
    assert found["l2_latency_by_sectors_clocks"]["1"] == pytest.approx(370)
    quantiles = found["dram_latency_quantiles_clocks"]
    assert quantiles["p50"] == pytest.approx(700, abs=5)
    # The quantiles of the normal distribution: 1.645 deviations enclose 5% to 95%.
    assert quantiles["p95"] - quantiles["p05"] == pytest.approx(2 * 1.645 * deviation, rel=0.03)
    assert found["dram_latency_deviation_clocks"] == pytest.approx(deviation, rel=0.06)


def test_hits_of_the_l2_deviate_from_the_mean_of_their_half():
    rng = np.random.default_rng(2)
    hits = [*rng.normal(300, 15, 6000), *rng.normal(480, 25, 2000)]  # fewer of the far half
    found = figures(
        [
            *(RawSample("chase_clocks", key, at) for key, at in (("l1", 32.0), ("l2_near", 290.0))),
            RawSample("chase_clocks", "l2_far", 470.0),
            RawSample("l1_hit_clocks", "1", 52.0),
            *(RawSample("l2_hit_clocks", "1", float(value) + 20) for value in hits),
        ]
    )
    expected = np.sqrt((3 * 15**2 + 25**2) / 4)
    assert found["l2_latency_deviation_clocks"] == pytest.approx(expected, rel=0.03)


def test_blocks_start_at_the_slope_of_large_grids():
    first_s, block_s, pair_s = 3e-6, 0.6e-9, 1.7e-6
    samples = [
        RawSample("clock_hz", "launches", CLOCK_HZ),
        *several("event_pair_s", "", pair_s, spread=0),
    ]
    for threads, factor in ((32, 1), (256, 2)):
        for blocks in (1, 16_384, 32_768, 65_536):
            seconds = first_s + factor * block_s * blocks
            samples += several("empty_grid_s", f"{threads}:{blocks}", seconds, spread=0)
    found = figures(samples)
    assert found["block_start_clocks_by_threads"] == pytest.approx({"32": 1.2, "256": 2.4})
    assert found["blocks_per_clock"] == pytest.approx(1 / 2.4, rel=1e-4)
    expected = first_s + 2 * block_s - pair_s
    assert found["shortest_kernel_s"] == pytest.approx(expected, rel=1e-3)


def test_cold_code_is_the_slope_over_the_sizes_of_usual_kernels():
    sizes = [2**10 * kib for kib in (2, 8, 32, 128)]
    samples = []
    for size in sizes:
        clocks = 600 + size / 8 if size <= 2**15 else size
        samples += several("cold_code_clocks", str(size), clocks, spread=0)
        samples += several("warm_code_clocks", str(size), 1.5 * size / 16, spread=0)
    found = figures(samples)
    assert found["cold_code_bytes_per_clock"] == pytest.approx(8, rel=1e-3)
    by_bytes = found["code_clocks_per_instruction_by_bytes"]
    assert by_bytes == pytest.approx(dict.fromkeys(map(str, sizes), 1.5))


def test_bandwidths_are_per_clock_and_of_the_peak():
    samples = [RawSample("clock_hz", key, CLOCK_HZ) for key in ("ports", "l1_read", "l2_read")]
    rates = {
        "l1_read": 126.5 * SMS * CLOCK_HZ,
        "l2_read": 4500 * CLOCK_HZ,
        "dram_read": 0.95 * PEAK,
        "dram_copy": 0.9 * PEAK,
    }
    for key, rate in rates.items():
        samples += several("bandwidth_bytes_per_s", key, rate, spread=0)
    for count, per_clock in (("1", 60), ("2", 119), (str(SMS), 4400)):
        samples += several("l2_ports_read_bytes_per_s", count, per_clock * CLOCK_HZ, spread=0)
    found = figures(samples)
    assert found["l1_bytes_per_clock_per_sm"] == 128  # but for the start and end of the loop
    assert found["l2_bytes_per_clock"] == pytest.approx(4500)
    assert found["dram_achievable_fraction"] == pytest.approx(0.95)
    assert found["dram_copy_fraction"] == pytest.approx(0.9)
    assert found["l2_port_bytes_per_clock_per_sm"] == pytest.approx(60)
    assert found["l2_bytes_per_clock_by_sms"]["2"] == pytest.approx(119)


@pytest.mark.parametrize(("second", "access"), [(0.99, 64), (0.55, 32)])
def test_the_width_of_a_dram_access_shows_in_the_rate_of_wider_ones(second, access):
    places = {"1": 3e10, "2": second * 3e10, "4": 0.5 * second * 3e10}
    samples = [RawSample("random_places_per_s", key, rate) for key, rate in places.items()]
    found = figures(samples)
    assert found["dram_access_bytes"] == access
    assert found["dram_random_fraction"] == pytest.approx(3e10 * access / PEAK, rel=1e-4)


def test_waits_for_dram_are_those_of_a_queue_and_of_writes():
    """The mean wait in an M/D/1 queue is service x load / 2 (1 - load): 30 clocks at 0.5 for 60."""
    samples = []
    for each, load, clocks in (
        (0, 0.05, 700.0),
        (0, 0.5, 730.0),
        (1, 0.25, 700.0 + 10.0 + 100.0),
        (2, 0.5, 700.0 + 30.0 + 200.0),
        (2, 0.95, 5000.0),  # beyond what a queue explains
    ):
        key = f"{each}:{load}"
        samples += several("loaded_latency_clocks", key, clocks, spread=0)
        samples += several("loaded_bytes_per_s", key, load * PEAK, spread=0)
    found = figures(samples)
    assert found["dram_queue_clocks"] == pytest.approx(60)
    assert found["dram_turnaround_clocks"] == pytest.approx(400)


@pytest.mark.parametrize("device", ["h100", "h200"])
def test_recorded_loads_give_the_figures_of_the_datasheet(device):
    known = loader.load_datasheet(device)
    with (DATA / f"{device}-loaded.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["bytes_per_lane"] == "16"]
    samples = []
    for row in rows:
        moved = float(row["read_bytes_per_clock"]) + float(row["written_bytes_per_clock"])
        key = f"{row['loads_per_store'] or 0}:{row['warps_per_sm']}"
        samples += [
            RawSample("loaded_latency_clocks", key, float(row["mean_clocks"])),
            RawSample("loaded_bytes_per_s", key, moved * known.clock_rate_hz),
        ]
    found, _ = figures_from_samples(samples, known)
    assert found["dram_queue_clocks"] == pytest.approx(known.dram_queue_clocks, rel=0.1)
    assert found["dram_turnaround_clocks"] == pytest.approx(known.dram_turnaround_clocks, rel=0.1)


def test_multiprocessors_that_meet_in_clusters_form_groups():
    firsts = joined([(4, 1), (2, 3), (3, 5), (5, 2), (6, 7), (0, 4)])
    assert firsts == {0: 0, 1: 0, 4: 0, 2: 2, 3: 2, 5: 2, 6: 6, 7: 6}
    samples = [RawSample("first_of_group", str(sm), float(first)) for sm, first in firsts.items()]
    assert figures(samples)["gpcs_by_sms"] == {"2": 1, "3": 2}


def test_a_figure_that_is_not_measured_says_why_and_from_where():
    made = datasheet(H200, {}, [], "2026-01-31")
    for name, reason in NOT_MEASURED.items():
        assert made.sources[name] == (
            f"{H200.sources[name]}; not measured by memlab calibrate: {reason}"
        )


def test_atomics_are_intervals_and_rates_per_clock():
    found = figures(
        [
            RawSample("clock_hz", "atomics", CLOCK_HZ),
            *several("same_address_per_s", "", 1 / 0.73e-9, spread=0),
            *several("same_address_floats_per_s", "", 1 / 1.75e-9, spread=0),
            *several("spread_lanes_per_s", "", 1000 * CLOCK_HZ, spread=0),
            *several("shared_same_lanes_per_clock", "", 0.5, spread=0),
        ]
    )
    assert found["global_atomic_same_address_s"] == pytest.approx(0.73e-9)
    assert found["global_atomic_same_address_float_s"] == pytest.approx(1.75e-9)
    assert found["global_atomics_per_clock"] == pytest.approx(1000)
    assert found["shared_atomic_same_address_clocks"] == pytest.approx(2)


def test_an_implausible_figure_is_reported_and_left_out():
    samples = several("issued_per_clock", "", 4e9, spread=0) + several(
        "barrier_clocks", "8", 29.0, spread=0
    )
    found, failures = figures_from_samples(samples, H200)
    assert set(found) == {"barrier_latency_by_warps_clocks", "barrier_latency_clocks"}
    assert [failure.benchmark for failure in failures] == ["issue_slots_per_clock_per_sm"]


def test_a_line_goes_through_its_points():
    assert line_through({0: 3.0, 10: 8.0, 20: 13.0}) == pytest.approx((3, 0.5))


def test_a_written_datasheet_is_read_again_as_it_was(tmp_path):
    queried = replace(
        H200,
        uuid="GPU-1",
        driver_release="580.1",
        peer_access={"cuda:1": True},
        sources={**H200.sources, "uuid": "queried: x", "driver_release": "queried: x"},
    )
    measured = {"dram_latency_clocks": 700.5, "mma_latency_clocks": {"fp16": 33.25}}
    samples = [RawSample("clock_hz", "", 1.98e9)]
    made = datasheet(queried, measured, samples, "2026-01-31")
    path = tmp_path / 'my "GPU".toml'
    path.write_text(datasheet_text(made), encoding="utf-8")
    again = loader.read_datasheet(str(path))
    assert known_figures(again) == known_figures(made)
    assert again.sources == {name: text for name, text in made.sources.items() if name != "name"}
    assert provenance(again, "dram_latency_clocks") == "measured"
    assert again.sources["dram_latency_clocks"] == (
        "measured: memlab calibrate on NVIDIA H200 at 1980 MHz, driver 580.1, 2026-01-31"
    )
    assert provenance(again, "total_memory_bytes") == "datasheet"
    assert (again.uuid, again.pci_bus_id, again.peer_access) == (None, None, {})
