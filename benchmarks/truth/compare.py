"""An emulated device against the real one: errors of time and counters, one by one and over all.

The errors are modelled minus measured, relative to measured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, table
from benchmarks.truth import stalls
from benchmarks.truth.cases import Case
from benchmarks.truth.measured import Measured, measured_launches
from benchmarks.truth.modelled import Modelled, modelled_launches
from benchmarks.truth.operations import OPERATIONS
from memlab.device.properties import DeviceProperties

SHARES: Mapping[str, float] = {
    "l2_read_sectors": 0.10,
    "dram_read_bytes": 0.10,
    "global_load_sectors": 0.01,
    "shared_load_wavefronts": 0.02,
    "shared_store_wavefronts": 0.02,
    "shared_excessive_wavefronts": 0.02,
    "warp_instructions": 0.02,
    "thread_instructions": 0.02,
    "iop": 0.02,
    "flop_16_bit": 0.02,
    "instructions_alu": 0.02,
    "instructions_fma": 0.02,
    "instructions_xu": 0.02,
}
"""Counters, with the error up to which a launch counts as right."""
LEAST_SHARES: Mapping[str, float] = {
    "l2_read_sectors": 95,
    "dram_read_bytes": 95,
    "shared_load_wavefronts": 97,
    "shared_excessive_wavefronts": 97,
    "warp_instructions": 97,
    "thread_instructions": 97,
}
"""The goals: of how many launches a counter is right, percent."""
SHOWN = {
    "l2_read_sectors": "L2 reads",
    "dram_read_bytes": "DRAM reads",
    "warp_instructions": "warp instr.",
    "thread_instructions": "thread instr.",
    "shared_load_wavefronts": "sh. loads",
    "shared_store_wavefronts": "sh. stores",
    "shared_excessive_wavefronts": "excessive",
}
"""Counters with a column of their own, and its title."""
ARITHMETIC = {name: operation.title for name, operation in OPERATIONS.items()}
"""The same of arithmetic."""


@dataclass(frozen=True)
class Comparison:
    """One launch, measured and modelled."""

    case: Case
    measured: Measured
    modelled: Modelled

    @property
    def time_error(self) -> float:
        """The error of the modelled time."""
        return self.modelled.time_s / self.measured.time_s - 1

    @property
    def roofline_error(self) -> float:
        """The error of the plain roofline's time."""
        return self.modelled.roofline_s / self.measured.time_s - 1

    @property
    def counters_error(self) -> float:
        """The error of the time by counters alone."""
        return self.modelled.counters_s / self.measured.time_s - 1

    @property
    def within_interval(self) -> bool:
        """Whether the measured time lies in the interval that is given with the modelled one."""
        return self.modelled.low_s <= self.measured.time_s <= self.modelled.high_s

    def counter_error(self, name: str) -> float | None:
        """The error of a counter; None if it was not measured, or both are 0."""
        real, counted = self.measured.counters.get(name), self.modelled.counters.get(name)
        if real is None or counted is None or (real == 0 and counted == 0):
            return None
        return counted / real - 1 if real else math.inf


def compare_launches(
    chosen: Iterable[Case],
    jobs: int,
    cache: Path | None = None,
    *,
    properties: DeviceProperties | None = None,
    measured_table: Path | None = None,
) -> list[Comparison]:
    """Run the launches that were measured on an emulated device.

    Args:
        chosen: The launches; those that were not measured are left out.
        jobs: How many run at a time.
        cache: As of `modelled_launches`.
        properties: The device; None for those that were measured.
        measured_table: As of `measured_launches`.
    """
    measured = measured_launches(measured_table)
    cases = {case.name: case for case in chosen if case.name in measured}
    compared: dict[str, Comparison] = {}
    for name, modelled in modelled_launches(list(cases.values()), properties, jobs, cache):
        if modelled.failure:
            print(f"{name}: not emulated: {modelled.failure}", file=sys.stderr)
        else:
            if modelled.verified == "failed":
                print(f"{name}: the result is not that of its reference", file=sys.stderr)
            compared[name] = Comparison(cases[name], measured[name], modelled)
    # In the order of the cases, not in that of the processes' ends, which decides among equals.
    return [compared[name] for name in cases if name in compared]


def launch_table(compared: Sequence[Comparison], counters: Mapping[str, str]) -> str:
    """One line per launch, the largest error of the time first.

    Args:
        compared: The launches.
        counters: The counters whose errors are listed, and their titles.
    """
    ordered = sorted(compared, key=lambda one: -abs(one.time_error))
    header = ("launch", "kind", "measured", "model", "error", "roofline", *counters.values())
    rows = [
        [
            one.case.name,
            one.case.kind,
            f"{1e6 * one.measured.time_s:.1f} us",
            f"{1e6 * one.modelled.time_s:.1f} us",
            _percent(one.time_error),
            _percent(one.roofline_error),
            *(_percent(one.counter_error(name)) for name in counters),
        ]
        for one in ordered
    ]
    return table(header, rows)


def stall_table(compared: Sequence[Comparison]) -> str:
    """The largest stalls of each launch, and how well the model agrees."""
    return stalls.stall_table(
        (one.case.name, one.measured.stalls, one.modelled.stalls) for one in compared
    )


def summary(compared: Sequence[Comparison]) -> str:
    """The errors of the time over all launches and by kind, and the shares of right counters."""
    kinds = sorted({one.case.kind for one in compared})
    groups = [(kind, [one for one in compared if one.case.kind == kind]) for kind in kinds]
    header = ("time", "launches", "mean |e|", "median", "p90 |e|", "worst", "rank corr.")
    within = sum(one.within_interval for one in compared)
    rows = [
        _time_row("all", [one.time_error for one in compared], compared),
        _time_row("by counters alone", [one.counters_error for one in compared], compared),
        _time_row("plain roofline", [one.roofline_error for one in compared], compared),
    ]
    rows += [_time_row(kind, [one.time_error for one in of], of) for kind, of in groups]
    shares = [
        [name.replace("_", " "), f"{100 * limit:g}%", *_share(compared, name, limit)]
        for name, limit in SHARES.items()
    ]
    return "\n\n".join(
        (
            table(header, rows),
            f"{within} of {len(compared)} measured times lie within the interval of the model",
            table(("counter", "within", "launches", "share", "median", "worst"), shares),
        )
    )


def figures(compared: Sequence[Comparison], title: str) -> list[Figure]:
    """The errors of the time, and the shares of right counters, with their goals."""
    errors = np.array([one.time_error for one in compared])
    sizes = 100 * np.abs(errors)
    shares = {
        name: [abs(error) <= limit for error in _counter_errors(compared, name)]
        for name, limit in SHARES.items()
        if name in LEAST_SHARES
    }
    return [
        Figure(f"{title}: mean absolute error of the time", float(sizes.mean()), "%", 10),
        Figure(f"{title}: its 90th percentile", float(np.quantile(sizes, 0.9)), "%", 20),
        Figure(f"{title}: the worst", float(sizes.max()), "%", 40),
        Figure(f"{title}: median signed error", float(100 * np.median(errors)), "%", 3, -3),
        *(
            Figure(f"{title}: {name}", 100 * sum(right) / len(right), "%", None, LEAST_SHARES[name])
            for name, right in shares.items()
            if right
        ),
    ]


def _counter_errors(compared: Sequence[Comparison], name: str) -> list[float]:
    return [error for one in compared if (error := one.counter_error(name)) is not None]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation; equal values are ranked by their order."""
    if len(first) < 2:
        return math.nan
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    centred = [rank - (len(first) - 1) / 2 for rank in ranks]
    return float((centred[0] * centred[1]).sum() / (centred[0] ** 2).sum())


def _time_row(title: str, errors: Sequence[float], compared: Sequence[Comparison]) -> list[str]:
    sizes = np.abs(errors)
    modelled_s = [
        (1 + error) * one.measured.time_s for error, one in zip(errors, compared, strict=True)
    ]
    return [
        title,
        str(len(errors)),
        f"{100 * sizes.mean():.1f}%",
        f"{100 * np.median(errors):+.1f}%",
        f"{100 * np.quantile(sizes, 0.9):.1f}%",
        _percent(errors[int(sizes.argmax())]),
        f"{rank_correlation([one.measured.time_s for one in compared], modelled_s):.3f}",
    ]


def _share(compared: Sequence[Comparison], name: str, limit: float) -> list[str]:
    errors = _counter_errors(compared, name)
    if not errors:
        return ["0", "", "", ""]
    right = sum(abs(error) <= limit for error in errors)
    worst = max(errors, key=abs)
    median = float(np.median(errors))
    return [
        f"{right}/{len(errors)}",
        f"{100 * right / len(errors):.0f}%",
        _percent(median),
        _percent(worst),
    ]


def _percent(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.1f}%"
