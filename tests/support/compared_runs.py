"""Runs with planted differences, to compare."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import example_runs
import numpy as np

from memlab.device.measurement import Code, Time

if TYPE_CHECKING:
    from memlab.roofline.run import Run

GPU = replace(
    example_runs.measurement("tiled16").device,
    kind="cuda",
    key="cuda:0",
    uuid="GPU-1",
    driver="580",
)


def measured(
    median_s: float, noise: float = 0.002, count: int = 50, seed: int = 1, **changes: Any
) -> Run:
    """A measured run of tiled 16 whose samples have this median, with normal noise."""
    samples = median_s * (1 + noise * np.random.default_rng(seed).normal(size=count))
    samples *= median_s / np.median(samples)
    time = Time(
        median_s, "measured", samples=count, clock_hz=1.98e9, durations_s=tuple(samples.tolist())
    )
    fields: dict[str, Any] = {
        "time": time,
        "device": GPU,
        "code": Code("t.cu", "s1", "m1"),
    } | changes
    return example_runs.run_of(replace(example_runs.measurement("tiled16"), **fields))


def modelled(median_s: float, **fields: Any) -> Run:
    """A run of tiled 16 of its own code with a modelled time, 10% too short to 20% too long."""
    time = Time(median_s, "modelled", interval_low_s=0.9 * median_s, interval_high_s=1.2 * median_s)
    return measured(1e-3, time=replace(time, **fields), code=Code("t.cu", "s", f"m{median_s}"))


def changed(run: Run, **fields: Any) -> Run:
    """A run with other fields of its measurement."""
    return replace(run, measurement=replace(run.measurement, **fields))


def with_time(run: Run, **fields: Any) -> Run:
    """A run with other fields of its time."""
    return changed(run, time=replace(run.measurement.time, **fields))


OTHER = Code("t.cu", "s2", "m2")


def counted(sectors: int, **coverage: Any) -> Run:
    """An emulated run with so many sectors of global loads."""
    base = example_runs.measurement("tiled16", "modelled")
    return example_runs.run_of(
        replace(
            base,
            counters=base.counters.replace_named(global_load_sectors=sectors),
            coverage=replace(base.coverage, **coverage),
        )
    )
