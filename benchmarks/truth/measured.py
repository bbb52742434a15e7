"""What a GPU measured, read from the tables that the measurements wrote."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.counters import RENAMED, RESULTS, TABLE
from benchmarks.truth.operations import measured_operations
from benchmarks.truth.stalls import measured_stalls
from memlab.device.nvidia_tools import ncu

WRITTEN_TABLES = (
    "h200-truth.csv",
    "h200-operations.csv",
    "h200-held-out.csv",
    "h100-held-out-3.csv",
    "h200-held-out-4.csv",
    "h200-held-out-5.csv",
    "h100-held-out-6.csv",
    "h100-public-kernels.csv",
)
"""The tables of `python -m benchmarks.truth measure`, in Nsight Compute's names."""
RECOUNTED = "h100-recounted.csv"
"""Metrics of some of these launches that an H100 counted later, to be added to the others."""


@dataclass(frozen=True)
class Measured:
    """One launch on the GPU.

    Attributes:
        time_s: The kernel's duration under Nsight Compute with cold caches, seconds.
        counters: Counters by the names of `memlab.device.measurement.Counters`, and `OPERATIONS`.
        stalls: The clocks of a warp per issued instruction, by state; empty if not measured.
    """

    time_s: float
    counters: Mapping[str, float]
    stalls: Mapping[str, float] = field(default_factory=dict)


def measured_launches(table: Path | None = None) -> dict[str, Measured]:
    """The measured launches by the names of their cases.

    Args:
        table: A table of `python -m benchmarks.truth measure` of another GPU; None for those of the
            H200.
    """
    if table is not None:
        return dict(_rows(table))
    rows = dict(_catalog_rows(RESULTS / TABLE))
    recounted = dict(_metrics(RESULTS / RECOUNTED))
    for name in WRITTEN_TABLES:
        rows |= dict(_rows(RESULTS / name, recounted))
    return rows


def _metrics(table: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The figures of each launch of a table."""
    if not table.exists():
        return
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            figures = {name: _number(value) for name, value in row.items()}
            yield (
                row["launch"],
                {name: value for name, value in figures.items() if value is not None},
            )


def _rows(
    table: Path, recounted: Mapping[str, Mapping[str, float]] | None = None
) -> Iterator[tuple[str, Measured]]:
    for launch, figures in _metrics(table):
        metrics = figures | dict((recounted or {}).get(launch, {}))
        if ncu.DURATION_METRIC in metrics:
            time_s = 1e-9 * metrics[ncu.DURATION_METRIC]
            counters = ncu.counters_from_metrics(metrics) | measured_operations(metrics)
            yield launch, Measured(time_s, counters, measured_stalls(metrics))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _catalog_rows(table: Path) -> Iterator[tuple[str, Measured]]:
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["source"] != "hardware" or not row["duration_ns"]:
                continue
            named = {"kernel", "parameters", "grid", "block", "integer_arguments", "source"}
            counters = {
                RENAMED.get(column, column): float(value)
                for column, value in row.items()
                if value and column not in named
            }
            name = f"{row['kernel']} {row['parameters']}".rstrip()
            yield name, Measured(1e-9 * float(row["duration_ns"]), counters)
