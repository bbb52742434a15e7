"""A run as data: the JSON document that is printed and stored, and the flat row for CSV.

The document is what `memlab run --json` prints and what the store keeps, so nothing of a
`Run` may be lost in it. It is strict JSON, which has no number for infinity or NaN (the error
of an output that holds one): these are written as the strings `"Infinity"`, `"-Infinity"` and
`"NaN"`, as in protobuf's JSON mapping.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from numbers import Integral, Real
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device.measurement import (
    Counters,
    Coverage,
    DeviceSummary,
    LineCounters,
    Measurement,
    Occupancy,
    Resources,
    Time,
    Verification,
)
from memlab.device.properties import version_text
from memlab.errors import UsageError
from memlab.roofline.documents.decoding import malformed_document_error, record_from_json, validated
from memlab.roofline.run import TRAFFIC_LEVELS, Placement, Run

if TYPE_CHECKING:
    from memlab.kernels.launch import Dim3

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""

Cell: TypeAlias = str | int | float | None
"""One value of a flat row."""


def run_document(run: Run) -> dict[str, Any]:
    """Give a run as a JSON document.

    Returns:
        Plain `dict`, `list`, `str`, `int`, `float` and `None` in base units with the unit in
        the key; `json.dumps(document, allow_nan=False)` takes it.
    """
    measurement = run.measurement
    device = measurement.device
    document = {
        "schema_version": SCHEMA_VERSION,
        "id": run.id,
        "created_at": run.created_at,
        "memlab_version": run.memlab_version,
        "kernel": measurement.kernel,
        "parameters": measurement.parameters,
        "tile": measurement.tile,
        "flop": measurement.flop,
        "compulsory_bytes": measurement.compulsory_bytes,
        "device": asdict(device) | {"compute_capability": version_text(device.compute_capability)},
        "launch": {
            "grid": measurement.grid,
            "block": measurement.block,
            "dynamic_shared_bytes": measurement.dynamic_shared_bytes,
        },
        "resources": asdict(measurement.resources),
        "occupancy": asdict(measurement.occupancy),
        "coverage": asdict(measurement.coverage),
        "counters": asdict(measurement.counters),
        "counters_ncu": measurement.counters_ncu,
        "library_time": {name: asdict(time) for name, time in measurement.library_time.items()},
        "lines": [asdict(line) for line in measurement.lines],
        "time": asdict(measurement.time),
        "roofline": asdict(run.placement),
        "verification": asdict(measurement.verification),
        "advice": run.advice,
    }
    return {key: to_plain_json(value) for key, value in document.items()}


def to_plain_json(value: object) -> Any:
    """Reduce a value to what strict JSON has: NumPy's numbers become Python's, infinity a string.

    Raises:
        TypeError: It is neither text, number nor a collection of these.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(each) for each in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    raise TypeError(f"{type(value).__name__} has no place in a document")


def run_from_document(document: Mapping[str, Any]) -> Run:
    """Give back the run that `run_document` wrote.

    Keys that this version does not know are passed over; a counter that the document does not
    hold, since an older version wrote it, is 0.

    Raises:
        UsageError: The document has another schema version, or is not a run's.
    """
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the run document has schema_version {shown(version)}; "
            f"this memlab reads {SCHEMA_VERSION}"
        )
    try:
        return validated(_run_from_values(document))
    except KeyError as missing:
        raise UsageError(f"the run document has no {missing}") from missing
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise malformed_document_error("run", error) from error


ROW_COLUMNS = (
    "id",
    "created_at",
    "memlab_version",
    "kernel",
    "parameters",
    "tile",
    "flop",
    "compulsory_bytes",
    "device",
    "device_name",
    "device_kind",
    "compute_capability",
    "grid",
    "block",
    "dynamic_shared_bytes",
    *(field.name for field in fields(Resources)),
    "occupancy",
    "blocks_per_sm",
    "occupancy_limiter",
    *(field.name for field in fields(Coverage)),
    *(field.name for field in fields(Counters)),
    "median_s",
    "time_provenance",
    "time_samples",
    "flop_per_s",
    *(f"intensity_{level}_flop_per_byte" for level in TRAFFIC_LEVELS),
    "bound",
    "ceiling",
    "ceiling_flop_per_s",
    "fraction_of_ceiling",
    "verification",
    "relative_error",
    "tolerance",
    "elements_checked",
    "elements_total",
    "elements_wrong",
    "advice",
)
"""The columns of `run_row` in order; the same for every kernel, with or without any run."""


def run_row(run: Run) -> dict[str, Cell]:
    """Flatten a run to one row, for CSV and pandas.

    Returns:
        A value for each of `ROW_COLUMNS`, in base units with the unit in the column's name.
        `parameters` reads `m=2048 k=2048 n=2048 tile=16`; grid and block read `128x128x1`.
    """
    measurement, placement = run.measurement, run.placement
    verification = measurement.verification
    row: dict[str, Cell] = {
        "id": run.id,
        "created_at": run.created_at,
        "memlab_version": run.memlab_version,
        "kernel": measurement.kernel,
        "parameters": " ".join(f"{name}={value}" for name, value in measurement.parameters.items()),
        "tile": measurement.tile,
        "flop": measurement.flop,
        "compulsory_bytes": measurement.compulsory_bytes,
        "device": measurement.device.key,
        "device_name": measurement.device.name,
        "device_kind": measurement.device.kind,
        "compute_capability": version_text(measurement.device.compute_capability),
        "grid": "x".join(map(str, measurement.grid)),
        "block": "x".join(map(str, measurement.block)),
        "dynamic_shared_bytes": measurement.dynamic_shared_bytes,
        **asdict(measurement.resources),
        "occupancy": measurement.occupancy.theoretical,
        "blocks_per_sm": measurement.occupancy.blocks_per_sm,
        "occupancy_limiter": measurement.occupancy.limiter,
        **asdict(measurement.coverage),
        **asdict(measurement.counters),
        "median_s": measurement.time.median_s,
        "time_provenance": measurement.time.provenance,
        "time_samples": measurement.time.samples,
        "flop_per_s": placement.flop_per_s,
        **{
            f"intensity_{level}_flop_per_byte": placement.intensity_flop_per_byte.get(level)
            for level in TRAFFIC_LEVELS
        },
        "bound": placement.bound,
        "ceiling": placement.ceiling,
        "ceiling_flop_per_s": placement.ceiling_flop_per_s,
        "fraction_of_ceiling": placement.fraction_of_ceiling,
        "verification": verification.status,
        "relative_error": verification.relative_error,
        "tolerance": verification.tolerance,
        "elements_checked": verification.checked,
        "elements_total": verification.total,
        "elements_wrong": verification.wrong,
        "advice": " ".join(run.advice),
    }
    return row


def runs_csv(runs: Iterable[Run]) -> str:
    """Give runs as CSV text: a header, then a row for each; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ROW_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(run_row(run) for run in runs)
    return text.getvalue()


def _run_from_values(document: Mapping[str, Any]) -> Run:
    device, launch, ncu = document["device"], document["launch"], document.get("counters_ncu")
    major, minor = device["compute_capability"].split(".")
    measurement = Measurement(
        kernel=document["kernel"],
        parameters=dict(document["parameters"]),
        tile=document["tile"],
        flop=document["flop"],
        compulsory_bytes=document["compulsory_bytes"],
        device=record_from_json(
            DeviceSummary, {**device, "compute_capability": (int(major), int(minor))}
        ),
        grid=_dim3(launch["grid"]),
        block=_dim3(launch["block"]),
        dynamic_shared_bytes=launch["dynamic_shared_bytes"],
        resources=record_from_json(Resources, document["resources"]),
        occupancy=record_from_json(Occupancy, document["occupancy"]),
        coverage=_coverage(document["coverage"]),
        counters=record_from_json(Counters, document["counters"]),
        lines=tuple(record_from_json(LineCounters, line) for line in document["lines"]),
        time=record_from_json(Time, document["time"]),
        verification=record_from_json(Verification, document["verification"]),
        counters_ncu=None if ncu is None else {name: float(ncu[name]) for name in ncu},
        library_time={
            name: record_from_json(Time, time)
            for name, time in document.get("library_time", {}).items()
        },
    )
    return Run(
        id=document["id"],
        created_at=document["created_at"],
        memlab_version=document["memlab_version"],
        measurement=measurement,
        placement=record_from_json(Placement, document["roofline"]),
        advice=tuple(document["advice"]),
    )


def _coverage(document: Mapping[str, Any]) -> Coverage:
    """Read a coverage; early ones said only whether data decides what a kernel does."""
    read = record_from_json(Coverage, document)
    sampled = read.blocks_emulated < read.blocks_total
    return replace(read, estimated=True) if sampled and document.get("data_dependent") else read


def _dim3(values: Iterable[int]) -> Dim3:
    x, y, z = values
    return x, y, z
