"""Figures that follow from a device's properties, by hand, and their provenance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlab.device import properties as derived
from memlab.device.properties import DeviceProperties

SMALL = DeviceProperties(
    "small",
    (8, 6),
    sources={
        "clock_rate_hz": "queried: cuDeviceGetAttribute",
        "multiprocessor_count": "queried: cuDeviceGetAttribute",
        "fp32_lanes_per_sm": "datasheet: a table",
        "l2_bytes_per_clock": "measured: a benchmark",
    },
    multiprocessor_count=10,
    clock_rate_hz=1_000_000_000,
    memory_clock_rate_hz=2_000_000_000,
    global_memory_bus_width_bits=64,
    fp32_lanes_per_sm=128,
    tensor_flop_per_s={"fp16": 8e12},
    tensor_clock_hz=1.5e9,
    uuid="GPU-1",
    driver_version="13.0",
)


def test_peaks_by_hand() -> None:
    assert derived.peak_flop_per_s(SMALL, "fp32") == 2 * 128 * 10 * 1e9
    assert derived.peak_flop_per_s(SMALL, "fp64") is None
    assert derived.peak_flop_per_s(SMALL, "fp16") == 8e12
    assert derived.peak_flop_per_s(SMALL, "bf16") is None
    assert derived.peak_bandwidth_bytes_per_s(SMALL) == 2 * 2e9 * 8
    assert derived.ridge_flop_per_byte(SMALL, "fp32") == 80
    assert derived.required_compute_to_global_access_ratio(SMALL) == 320
    assert derived.ridge_flop_per_byte(SMALL, "fp64") is None
    assert derived.required_compute_to_global_access_ratio(DeviceProperties("x", (9, 0))) is None


def test_a_vendors_figures_precede_those_of_the_driver() -> None:
    vendor = replace(SMALL, peak_clock_hz=2e9, peak_memory_bandwidth_bytes_per_s=3e10)
    assert derived.peak_flop_per_s(vendor, "fp32") == 2 * 128 * 10 * 2e9
    assert derived.peak_bandwidth_bytes_per_s(vendor) == 3e10
    assert derived.bandwidth_figures(vendor) == ("peak_memory_bandwidth_bytes_per_s",)
    assert derived.bandwidth_figures(SMALL) == (
        "memory_clock_rate_hz",
        "global_memory_bus_width_bits",
    )
    for device, clock in ((SMALL, "clock_rate_hz"), (vendor, "peak_clock_hz")):
        assert derived.clock_of_peak_hz(device, "fp32") == getattr(device, clock)
        assert derived.clock_of_peak_hz(device, "fp16") == 1.5e9
        assert derived.peak_figures(device, "fp32") == (
            "fp32_lanes_per_sm",
            "multiprocessor_count",
            clock,
        )
    assert derived.peak_figures(SMALL, "fp16") == ("tensor_flop_per_s",)


@pytest.mark.parametrize(
    ("names", "provenance"),
    [
        (("clock_rate_hz", "multiprocessor_count"), "queried"),
        (("clock_rate_hz", "fp32_lanes_per_sm"), "datasheet"),
        (("l2_bytes_per_clock", "fp32_lanes_per_sm", "clock_rate_hz"), "measured"),
        (("memory_clock_rate_hz",), "datasheet"),  # without a source
    ],
)
def test_a_product_is_as_reliable_as_its_weakest_factor(
    names: tuple[str, ...], provenance: str
) -> None:
    assert derived.provenance(SMALL, *names) == provenance


def test_only_a_real_gpu_has_a_driver() -> None:
    real = derived.device_summary(SMALL, "cuda", "cuda:0")
    assert (real.uuid, real.driver) == ("GPU-1", "CUDA 13.0")
    newer = replace(SMALL, driver_release="580.1")
    assert derived.device_summary(newer, "cuda", "cuda:0").driver == "580.1"
    emulated = derived.device_summary(newer, "emulated", "small")
    assert (emulated.uuid, emulated.driver) == (None, None)
    unknown = replace(SMALL, driver_version=None)
    assert derived.device_summary(unknown, "cuda", "cuda:0").driver is None


def test_unknown_and_empty_figures_are_not_listed() -> None:
    figures = derived.known_figures(replace(SMALL, ecc_enabled=False, pci_bus_id=0))
    assert {"ecc_enabled", "pci_bus_id", "tensor_flop_per_s", "warp_size"} <= set(figures)
    assert not {"name", "sources", "peer_access", "fp64_lanes_per_sm"} & set(figures)
