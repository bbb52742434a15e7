"""The calibration with the emulator as the GPU: every benchmark runs and is verified."""

import pytest
from emulated_gpu import PEAK_SIZES, EmulatedSession, Reports, ptx_for_cubin

import memlab
from memlab.device.datasheets import loader
from memlab.device.gpu.calibration import (
    calibrate,
    clusters,
    contention,
    launches,
    loaded,
    memory,
    pipes,
)
from memlab.device.gpu.calibration.calibrate import NOT_MEASURED
from memlab.device.gpu.peaks import bench
from memlab.device.properties import CALIBRATED_FIGURES

A100 = loader.load_datasheet("a100")
SIZES = {
    **PEAK_SIZES,
    pipes: {"REPEATS": 1, "RATE_TRIPS": 1, "LATENCY_TRIPS": 1},
    memory: {
        "SINGLE_MISSES": 8,
        "WARP_MISSES": 8,
        "RANDOM_BYTES": 2**18,
        "GATHER_TRIPS": (1, 2),
        "PORT_L2_PASSES_BYTES": 2**18,
        "PORT_BLOCK_BYTES": 2**18,
        "REACH_STEPS": 16,
    },
    loaded: {"BYTES": 2**18, "WARPS": (1, 2), "CHECKED_WORDS": 128},
    contention: {"CHAIN_STEPS": 16, "TRIPS": (1, 2), "SPREAD_WORDS": 2**12, "SHARED_TRIPS": 1},
    launches: {
        "GRIDS": (1, 2),
        "TURN_CLOCKS": 1,
        "WARP_START_REPEATS": 1,
        "CODE_REPEATS": 1,
        "CODE_KIB": (2, 4),
    },
}


@pytest.fixture
def small(monkeypatch):
    """Reduce all sizes so that the emulator needs only seconds."""
    monkeypatch.setattr(calibrate, "GpuSession", EmulatedSession)
    monkeypatch.setattr(bench, "compile_unit", ptx_for_cubin)
    for module, values in SIZES.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(calibrate.GROUPS)))
def test_every_benchmark_runs_and_is_verified(small, number):
    link = Reports()
    samples, failures = calibrate._measure_group(link, 0, A100, number)
    assert failures == []
    without_clusters = (clusters.measure_groups,)  # as an A100 is
    has_figures = calibrate.GROUPS[number].benchmarks != without_clusters
    assert bool(samples) == has_figures


@pytest.mark.gpu
@pytest.mark.alone
def test_a_gpu_gets_all_its_figures():
    """Physical limits that no measurement may pass, and an order that no GPU reverses."""
    calibration = memlab.calibrate()
    assert calibration.failures == ()
    assert calibration.duration_s < 240
    found = calibration.properties
    unmeasured = {"l2_far_latency_clocks", *NOT_MEASURED}
    assert set(CALIBRATED_FIGURES) <= {*calibration.measured, *unmeasured}
    assert {"dram_turnaround_clocks", "dram_queue_clocks", "gpcs_by_sms"} <= {*calibration.measured}
    assert found.pipe_lanes_per_clock_per_sm["fma"] <= found.fp32_lanes_per_sm * 1.005
    assert found.issue_slots_per_clock_per_sm <= 4.02
    assert found.shared_latency_clocks < found.l2_latency_clocks < found.dram_latency_clocks
    misses = found.dram_latency_by_sectors_clocks
    assert misses["1"] < misses["8"] < misses["32"]
    assert max(found.dram_achievable_fraction, found.dram_write_fraction) < 1
    groups = found.gpcs_by_sms
    assert sum(int(sms) * count for sms, count in groups.items()) == found.multiprocessor_count
