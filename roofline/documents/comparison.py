"""A comparison as data: the JSON document, and CSV with one row per figure."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memlab.roofline.documents.codec import encode

if TYPE_CHECKING:
    from memlab.device.measurement import LineCounters
    from memlab.roofline.comparison.records import Comparison, LineChange, PairComparison
    from memlab.roofline.run import Run

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""

CSV_COLUMNS = (
    "a_id",
    "a_kernel",
    "a_parameters",
    "a_device",
    "b_id",
    "b_kernel",
    "b_parameters",
    "b_device",
    "call",
    "section",
    "figure",
    "unit",
    "a",
    "b",
    "relative_change",
    "judgement",
)


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Give a comparison as a JSON document.

    Returns:
        Plain `dict`, `list`, `str`, `int`, `float` and `None`, in base units.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "threshold": comparison.threshold,
        "forced": comparison.forced,
        "failed": comparison.failed,
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "only_a": [_run(run) for run in comparison.only_a],
        "only_b": [_run(run) for run in comparison.only_b],
        "conditions": [asdict(result) for result in comparison.conditions],
    }


def _pair(pair: PairComparison) -> dict[str, Any]:
    return {
        "a": _run(pair.a),
        "b": _run(pair.b),
        "call": pair.call,
        "verdict": pair.verdict,
        "obstacles": list(pair.obstacles),
        "notes": list(pair.notes),
        "code": asdict(pair.code) | {"unchanged": pair.code.unchanged},
        "counters": pair.counters,
        "counters_differ": pair.counters_differ,
        "time": encode(pair.time),
        "figures": [encode(change) for change in pair.figures],
        "lines": [_line(line) for line in pair.lines],
        "advice_gone": list(pair.advice_gone),
        "advice_new": list(pair.advice_new),
    }


def _run(run: Run) -> dict[str, Any]:
    measurement = run.measurement
    return {
        "id": run.id,
        "created_at": run.created_at,
        "memlab_version": run.memlab_version,
        "identity": encode(run.identity),
        "kernel": measurement.kernel,
        "parameters": encode(measurement.parameters),
        "device": encode(measurement.device),
        "code": encode(measurement.code),
    }


def _line(line: LineChange) -> dict[str, Any]:
    def place(side: LineCounters | None) -> dict[str, Any] | None:
        return None if side is None else {"line": side.line, "text": side.text}

    return {
        "match": line.match,
        "a": place(line.a),
        "b": place(line.b),
        "counters": {name: {"a": a, "b": b} for name, (a, b) in line.counters.items()},
    }


def comparison_csv(comparison: Comparison) -> str:
    """Give the figures of a comparison as CSV text: one row per pair and figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for pair in comparison.pairs:
        sides = []
        for run in (pair.a, pair.b):
            measurement = run.measurement
            parameters = " ".join(f"{key}={value}" for key, value in measurement.parameters.items())
            sides += [run.id, measurement.kernel, parameters, measurement.device.key]
        for change in pair.figures:
            writer.writerow(
                [
                    *sides,
                    pair.call,
                    change.section,
                    change.name,
                    change.unit,
                    change.a,
                    change.b,
                    change.relative,
                    change.judgement,
                ]
            )
    return text.getvalue()
