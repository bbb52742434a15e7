"""The emulator's speed in lane-operations per second: instructions times their active lanes."""

from __future__ import annotations

import time

from benchmarks.report import Figure
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation import execution
from memlab.device.emulation.device import EmulatedDevice
from memlab.kernels.catalog import find_kernel

LANES = (1024, 16 * 1024)
"""Lanes that run at once: the elements of a register's array."""


def speed() -> list[Figure]:
    """Run all blocks of `tiled` with chunks of different sizes; time counts from the first."""
    device = EmulatedDevice("h200", loader.load_datasheet("h200"))
    launch = find_kernel("tiled").prepare(
        {"width": 256, "tile": 32}, launch_limits(device.properties)
    )
    figures = []
    usual = execution.CHUNK_LANES
    for lanes in LANES:
        moments: list[float] = []

        def note_time(what: str, done: float | None, moments: list[float] = moments) -> None:
            if what == "emulating":
                moments.append(time.perf_counter())

        execution.CHUNK_LANES = lanes
        try:
            counters = device.run(launch, 0, note_time).counters
        finally:
            execution.CHUNK_LANES = usual
        # The first chunk's end starts the clock: its own share is left out on both sides.
        share = 1 - 1 / len(moments)
        rate = counters.thread_instructions * share / (moments[-1] - moments[0])
        figures.append(Figure(f"tiled, {lanes} lanes at once", rate / 1e6, "M/s"))
    return figures
