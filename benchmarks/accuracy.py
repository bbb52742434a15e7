"""The errors of the models against an NVIDIA H200, compared with a plain roofline's."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import Figure, table
from memlab.device import time_model
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.device import EmulatedDevice
from memlab.device.measurement import Measurement
from memlab.kernels.catalog import find_kernel

TRUTH = Path(__file__).parents[1] / "tests" / "data" / "h200-counters.csv"
WIDTH = 2048
KERNELS = {
    "naive": ("naive", 16),
    "tiled8": ("tiled", 8),
    "tiled16": ("tiled", 16),
    "tiled32": ("tiled", 32),
}
"""Rows of the measured table, with the catalog's kernels and tiles."""

COUNTERS = {
    "l1_read_sector_hits": "global_load_sector_hits_l1",
    "l2_read_sectors": "l2_read_sectors",
    "dram_read_bytes": "dram_read_bytes",
}
"""Modelled counters, with the columns of the measured table."""

TIME_ERROR = 0.15
"""The largest relative error of the modelled time."""


def truth() -> dict[str, Mapping[str, str]]:
    """The measured rows by kernel."""
    with TRUTH.open() as file:
        return {row["kernel"]: row for row in csv.DictReader(file)}


def compare() -> tuple[str, list[Figure]]:
    """Run each kernel on the emulated H200.

    Returns:
        Two tables, of times and of cache counters, and the figures that have a limit.
    """
    device = EmulatedDevice("h200", loader.load_datasheet("h200"))
    measured = truth()
    times, counters, figures = [], [], []
    for name, (kernel, tile) in KERNELS.items():
        parameters = {"width": WIDTH, "tile": tile}
        emulated = device.run(
            find_kernel(kernel).prepare(parameters, launch_limits(device.properties)), 0
        )
        real_s = float(measured[name]["duration_ns"]) * 1e-9
        plain_s = time_model.plain_roofline_time_s(
            emulated.flop, emulated.counters.dram_read_bytes, device.properties
        )
        times.append(
            [
                name,
                f"{real_s * 1e3:.3f} ms",
                *_with_error(emulated.time.median_s, real_s, 1e3, " ms"),
                *_with_error(plain_s, real_s, 1e3, " ms"),
            ]
        )
        error = abs(emulated.time.median_s / real_s - 1)
        figures.append(Figure(f"{name}: error of the modelled time", error, "", TIME_ERROR))
        counters += [_counter(name, emulated, measured[name], counter) for counter in COUNTERS]
    text = "\n\n".join(
        (
            table(("kernel", "measured", "model", "error", "roofline", "error"), times),
            table(("kernel", "counter", "measured", "model", "error"), counters),
        )
    )
    return text, figures


def _counter(kernel: str, emulated: Measurement, row: Mapping[str, str], name: str) -> list[str]:
    real = float(row[COUNTERS[name]])
    return [kernel, name, f"{real:.4g}", *_with_error(getattr(emulated.counters, name), real)]


def _with_error(value: float, real: float, scale: float = 1, unit: str = "") -> list[str]:
    shown = f"{value * scale:.3f}{unit}" if unit else f"{value:.4g}"
    return [shown, f"{value / real - 1:+.1%}"]
