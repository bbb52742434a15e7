"""A baseline file: launches and what they cost, in a form whose differences people can read.

It is JSON in a stable order, with one figure a line. What changes although nothing did (times of
day, numbers of runs, numbers of source lines, samples) is left out, and so are zeros.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.roofline.documents import runs as run_documents
from memlab.roofline.documents.runs import run_document, run_from_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memlab.roofline.run import Recipe, Run

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""

SIGNIFICANT_DIGITS = 9
"""Digits of a number that is no count: the last ones of a float may differ between machines, and
comparisons pass over them."""

_RUN_KEYS = (
    "recipe",
    "device",
    "memlab_version",
    "kernel",
    "parameters",
    "tile",
    "flop",
    "compulsory_bytes",
    "launch",
    "code",
    "resources",
    "occupancy",
    "coverage",
    "time",
    "counters",
    "instructions",
    "lines",
    "roofline",
    "verification",
    "advice",
)
"""The keys of a run's document that a baseline holds, in order."""

_TIME_KEYS = (
    "median_s",
    "provenance",
    "samples",
    "interval_low_s",
    "interval_high_s",
    "clock_hz",
    "clock_drift",
    "bounds_s",
)
_ROOFLINE_KEYS = (
    "flop_per_s",
    "intensity_flop_per_byte",
    "bound",
    "ceiling",
    "ceiling_flop_per_s",
    "fraction_of_ceiling",
)
_COUNTS = ("counters", "instructions")


def baseline_text(runs: Iterable[Run]) -> str:
    """Write a baseline: of runs of one launch the last, in the order of their names."""
    entries = {_sort_key(run): _entry(run) for run in runs}
    document = {
        "memlab_baseline": SCHEMA_VERSION,
        "launches": [entries[key] for key in sorted(entries)],
    }
    return _json(document) + "\n"


def runs_from_baseline(text: str) -> list[Run]:
    """Read the runs of a baseline.

    Raises:
        UsageError: It is no baseline, or that of a newer memlab.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {error}") from None
    version = document.get("memlab_baseline") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"it is no baseline that this memlab reads (memlab_baseline must be {SCHEMA_VERSION})"
        )
    launches = document.get("launches")
    if not isinstance(launches, list) or not launches:
        raise UsageError("it lists no launches")
    runs = []
    for number, entry in enumerate(launches, start=1):
        if not isinstance(entry, dict):
            raise UsageError(f"launch {number} is no object")
        added = {
            "schema_version": run_documents.SCHEMA_VERSION,
            "created_at": "",
            "id": None,
            "identity": {"label": "baseline"},
        }
        try:
            run = run_from_document({**entry, **added})
        except UsageError as error:
            raise UsageError(f"launch {number}: {error}") from None
        if run.recipe is None:
            raise UsageError(f"launch {number} has no recipe")
        runs.append(run)
    return runs


def recipe_text(recipe: Recipe) -> str:
    """Name a launch by its recipe: `tiled width=512 tile=16`."""
    options = (f"{key}={_plain(value)}" for key, value in recipe.options.items())
    return " ".join((recipe.kernel, *options))


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _sort_key(run: Run) -> tuple[str, str, str, int]:
    recipe = run.recipe
    assert recipe is not None
    options = json.dumps(recipe.options, sort_keys=True)
    return recipe.kernel, options, run.measurement.device.key, recipe.seed


def _entry(run: Run) -> dict[str, Any]:
    document = run_document(run)
    entry = {key: document[key] for key in _RUN_KEYS}
    for key in _COUNTS:
        entry[key] = _without_zeros(entry[key])
    # Line numbers change with every edit above; texts do not.
    entry["lines"] = [
        {key: value for key, value in _without_zeros(line).items() if key != "line"}
        for line in entry["lines"]
    ]
    entry["time"] = {key: entry["time"][key] for key in _TIME_KEYS}
    entry["roofline"] = {key: entry["roofline"][key] for key in _ROOFLINE_KEYS}
    rounded: dict[str, Any] = _rounded(entry)
    return rounded


def _without_zeros(counts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in counts.items() if value not in (0, "", {}, None)}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return value


def _json(value: Any, indent: str = "") -> str:
    """Write JSON with a key a line; a list of plain values stays on one line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        lines = (f"{inner}{json.dumps(key)}: {_json(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        lines = (f"{inner}{_json(item, inner)}" for item in value)
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
