"""A run as data: the JSON document that is printed and stored, and the flat row for CSV.

The document is the output of `memlab run --json` and is kept in the store, so it holds all of a
`Run`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from memlab.device.measurement import Counters, Coverage, Resources
from memlab.device.properties import version_text
from memlab.roofline.documents.codec import encode, read_document
from memlab.roofline.run import TRAFFIC_LEVELS, Run

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""

Cell: TypeAlias = str | int | float | None
"""One value of a flat row."""

DOCUMENT_KEYS = (
    "schema_version",
    "id",
    "created_at",
    "memlab_version",
    "identity",
    "recipe",
    "kernel",
    "parameters",
    "tile",
    "flop",
    "compulsory_bytes",
    "device",
    "launch",
    "code",
    "resources",
    "occupancy",
    "coverage",
    "counters",
    "instructions",
    "counters_ncu",
    "library_time",
    "lines",
    "time",
    "stalls",
    "roofline",
    "verification",
    "advice",
)
"""The keys of a run's document in order: the fields of `Run` and `Measurement` side by side, but
for those in `launch`; the placement is under `roofline`."""

LAUNCH_KEYS = ("grid", "block", "dynamic_shared_bytes", "cluster")
"""The keys of `launch` in a run's document."""


def run_document(run: Run) -> dict[str, Any]:
    """Give a run as a JSON document.

    Returns:
        Plain `dict`, `list`, `str`, `int`, `float` and `None` in base units with the unit in
        the key; `json.dumps(document, allow_nan=False)` takes it.
    """
    values = encode(run)
    values |= values["measurement"] | {
        "schema_version": SCHEMA_VERSION,
        "launch": {key: values["measurement"][key] for key in LAUNCH_KEYS},
        "roofline": values["placement"],
    }
    return {key: values[key] for key in DOCUMENT_KEYS}


def run_from_document(document: Mapping[str, Any]) -> Run:
    """Give back the run that `run_document` wrote.

    Unknown keys are ignored; a counter that is missing, since an older version wrote the
    document, is 0.

    Raises:
        UsageError: The document has another schema version, or holds no run.
    """
    return read_document(Run, document, SCHEMA_VERSION, _run_values)


def _run_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Arrange a document's values as the fields of `Run`."""
    coverage = document["coverage"]
    # Early versions wrote whether data decides what a kernel does, also where all blocks ran.
    if coverage.get("data_dependent") and coverage["blocks_emulated"] < coverage["blocks_total"]:
        coverage = coverage | {"estimated": True}
    measurement = {**document, **document["launch"], "coverage": coverage}
    return {**document, "measurement": measurement, "placement": document["roofline"]}


def _intensity(run: Run, level: str) -> float | None:
    return run.placement.intensity_flop_per_byte.get(level)


_COLUMNS: dict[str, Callable[[Run], Cell]] = {
    "id": lambda run: run.id,
    "created_at": lambda run: run.created_at,
    "memlab_version": lambda run: run.memlab_version,
    "label": lambda run: run.identity.label,
    "note": lambda run: run.identity.note,
    "sweep": lambda run: run.identity.sweep,
    "git_commit": lambda run: run.identity.git_commit,
    "git_clean": lambda run: run.identity.git_clean,
    "kernel": lambda run: run.measurement.kernel,
    "parameters": lambda run: " ".join(
        f"{name}={value}" for name, value in run.measurement.parameters.items()
    ),
    "tile": lambda run: run.measurement.tile,
    "flop": lambda run: run.measurement.flop,
    "compulsory_bytes": lambda run: run.measurement.compulsory_bytes,
    "device": lambda run: run.measurement.device.key,
    "device_name": lambda run: run.measurement.device.name,
    "device_kind": lambda run: run.measurement.device.kind,
    "compute_capability": lambda run: version_text(run.measurement.device.compute_capability),
    "grid": lambda run: "x".join(map(str, run.measurement.grid)),
    "block": lambda run: "x".join(map(str, run.measurement.block)),
    "cluster": lambda run: "x".join(map(str, run.measurement.cluster)),
    "dynamic_shared_bytes": lambda run: run.measurement.dynamic_shared_bytes,
    **{
        field.name: attrgetter(f"measurement.resources.{field.name}") for field in fields(Resources)
    },
    "source_sha256": lambda run: run.measurement.code.source_sha256,
    "machine_code_sha256": lambda run: run.measurement.code.machine_code_sha256,
    "compile_options": lambda run: " ".join(run.measurement.code.options),
    "occupancy": lambda run: run.measurement.occupancy.theoretical,
    "blocks_per_sm": lambda run: run.measurement.occupancy.blocks_per_sm,
    "occupancy_limiter": lambda run: run.measurement.occupancy.limiter,
    "active_clusters": lambda run: run.measurement.occupancy.active_clusters,
    **{field.name: attrgetter(f"measurement.coverage.{field.name}") for field in fields(Coverage)},
    **{name: attrgetter(f"measurement.counters.{name}") for name in Counters.names()},
    "instructions_counted": attrgetter("measurement.instructions.counted"),
    "median_s": lambda run: run.measurement.time.median_s,
    "time_provenance": lambda run: run.measurement.time.provenance,
    "time_samples": lambda run: run.measurement.time.samples,
    "flop_per_s": lambda run: run.placement.flop_per_s,
    "iop_per_s": lambda run: run.placement.iop_per_s,
    **{
        f"intensity_{level}_flop_per_byte": partial(_intensity, level=level)
        for level in TRAFFIC_LEVELS
    },
    "bound": lambda run: run.placement.bound,
    "ceiling": lambda run: run.placement.ceiling,
    "ceiling_flop_per_s": lambda run: run.placement.ceiling_flop_per_s,
    "fraction_of_ceiling": lambda run: run.placement.fraction_of_ceiling,
    "verification": lambda run: run.measurement.verification.status,
    "relative_error": lambda run: run.measurement.verification.relative_error,
    "tolerance": lambda run: run.measurement.verification.tolerance,
    "elements_checked": lambda run: run.measurement.verification.checked,
    "elements_total": lambda run: run.measurement.verification.total,
    "elements_wrong": lambda run: run.measurement.verification.wrong,
    "advice": lambda run: " ".join(run.advice),
}

ROW_COLUMNS = tuple(_COLUMNS)
"""The columns of `run_row` in order; the same for every kernel, with or without any run."""


def run_row(run: Run) -> dict[str, Cell]:
    """Flatten a run to one row, for CSV and pandas.

    Returns:
        A value for each of `ROW_COLUMNS`, in base units with the unit in the column's name.
        `parameters` reads `m=2048 k=2048 n=2048 tile=16`; grid and block read `128x128x1`.
    """
    return {name: read(run) for name, read in _COLUMNS.items()}


def runs_csv(runs: Iterable[Run]) -> str:
    """Give runs as CSV text: a header, then one row per run; unknown values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ROW_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(run_row(run) for run in runs)
    return text.getvalue()
