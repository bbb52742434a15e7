"""The rates of one SM's share of the device, by hand-computed figures."""

from dataclasses import replace

import pytest

import memlab
from memlab.device.datasheets import loader
from memlab.device.machine_code.instructions import Control, MachineCode, MachineInstruction
from memlab.device.sm_model.device_rates import dram_fraction, hit_share, prefetched_clocks
from memlab.device.sm_model.machine_steps import machine_steps
from memlab.device.sm_model.profile import LaunchProfile

DEVICE = replace(
    loader.load_datasheet("h200"),
    dram_access_bytes=64,
    dram_achievable_fraction=0.9,
    dram_write_fraction=0.95,
    dram_copy_fraction=0.8,
    dram_random_fraction=0.5,
)


@pytest.mark.parametrize(
    ("written", "sector_bytes", "fraction"),
    [(0, 32, 0.9), (0.5, 32, 0.8), (1, 32, 0.95), (0, 64, 0.5)],
)
def test_dram_reaches_what_was_measured_of_streams_and_of_random_sectors(
    written, sector_bytes, fraction
):
    assert dram_fraction(written, sector_bytes, DEVICE) == pytest.approx(fraction)


def test_times_of_lone_and_of_neighbouring_sectors_add_up():
    # Half of the sectors are lone: per pair 64 bytes at 0.5 and 32 bytes at 0.9 of the peak.
    assert dram_fraction(0, 48, DEVICE) == pytest.approx(96 / (64 / 0.5 + 32 / 0.9))


def test_reads_and_writes_of_a_copy_in_the_l2_take_what_was_measured():
    # 1500 bytes a clock are read and as many written, which fill the time for writing.
    written = replace(DEVICE, l2_write_bytes_per_clock=2000.0, l2_copy_bytes_per_clock=3000.0)
    assert 1500 / 2000 + 1500 * hit_share(written) == pytest.approx(1)
    assert hit_share(replace(written, l2_copy_bytes_per_clock=None)) == 0


def test_the_launch_brings_code_and_parameters_into_the_second_cache():
    assert prefetched_clocks(DEVICE) == 98
    unknown = replace(DEVICE, constant_latency_by_footprint_clocks={})
    assert prefetched_clocks(unknown) == (280 + 455) / 2


def test_no_bound_is_longer_than_the_time():
    # A warp's loads follow each other in the PTX, and overlap in the machine code.
    time = memlab.run("column-sum", width=128, device="h200").measurement.time
    assert max(time.bounds_s.values()) == time.bounds_s["latency"] == time.median_s


@pytest.mark.parametrize(("device", "clocks"), [("h200", 1), ("a6000", 2)])
def test_load_units_of_half_a_warp_take_two_clocks_for_a_load(device, clocks):
    control = Control(1, None, None, 0)
    code = tuple(
        MachineInstruction(16 * place, "", opcode, (target, "[R2]"), None, 0, control)
        for place, (opcode, target) in enumerate((("LDG.E", "R4"), ("LDS", "R5")))
    )
    profile = LaunchProfile(MachineCode("k", (9, 0), code), (), (), (), 1.0, {}, 32.0, 0.0, 0.0)
    steps = machine_steps(profile, 1, loader.load_datasheet(device))
    assert list(steps["passes"]) == [clocks, 1]  # shared memory serves a warp at once
