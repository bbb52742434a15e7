"""A sweep as data: the JSON document, and the rows for CSV and pandas."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from memlab.roofline.documents.runs import ROW_COLUMNS, run_row

if TYPE_CHECKING:
    import pandas

    from memlab.roofline.documents.runs import Cell
    from memlab.roofline.sweep.records import Sweep, SweepRow

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""

_FIRST_COLUMNS = ("rank", "status", "reason", "objective", "value")
_MACHINE_COLUMNS = ("energy_j", "host", "gpu_uuid", "driver", "clock_hz")


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    """Give a sweep as a JSON document.

    Returns:
        Its axes, its objective and a list of points, the best first; a point has the values of
        the axes under `point` and the figures of its run under the names of the CSV columns.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "name": sweep.name,
        "created_at": sweep.created_at,
        "axes": [
            {"name": axis.name, "kind": axis.kind, "values": list(axis.values)}
            for axis in sweep.axes
        ],
        "objective": sweep.objective.name,
        "highest_is_best": sweep.objective.highest,
        "points": sweep.points,
        "excluded": sweep.excluded,
        "rows": [
            {
                "rank": rank,
                "status": row.status,
                "reason": row.reason,
                "point": row.values,
                "value": row.value,
                "reused": row.reused,
                **_machine(row),
                "run": None if row.run is None else _finite(run_row(row.run)),
            }
            for rank, row in _numbered(sweep)
        ],
    }


def sweep_csv(sweep: Sweep) -> str:
    """Give the rows of a sweep as CSV text; unknown values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(sweep), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(sweep))
    return text.getvalue()


def sweep_frame(sweep: Sweep) -> pandas.DataFrame:
    """Give the rows of a sweep as a frame, with the columns of the CSV."""
    import pandas

    frame = pandas.DataFrame(_rows(sweep), columns=_columns(sweep))
    # Whole numbers stay whole in a column with empty cells.
    names = ["rank", *(axis.name for axis in sweep.axes)]
    return frame.astype({name: frame[name].convert_dtypes().dtype for name in names})


def _columns(sweep: Sweep) -> list[str]:
    names = (axis.name for axis in sweep.axes)
    return list(dict.fromkeys((*_FIRST_COLUMNS, *names, *ROW_COLUMNS, *_MACHINE_COLUMNS)))


def _rows(sweep: Sweep) -> list[dict[str, Cell]]:
    return [
        {
            **({} if row.run is None else run_row(row.run)),
            **row.values,
            "rank": rank,
            "status": row.status,
            "reason": row.reason,
            "objective": sweep.objective.name,
            "value": row.value,
            **_machine(row),
        }
        for rank, row in _numbered(sweep)
    ]


def _numbered(sweep: Sweep) -> list[tuple[int | None, SweepRow]]:
    """The rows with their ranks; a row that is not done has none."""
    return [(rank if row.status == "done" else None, row) for rank, row in enumerate(sweep.rows, 1)]


def _machine(row: SweepRow) -> dict[str, Cell]:
    """Where a point ran."""
    device = None if row.run is None else row.run.measurement.device
    time = None if row.run is None else row.run.measurement.time
    return {
        "energy_j": row.energy_j,
        "host": row.host,
        "gpu_uuid": None if device is None else device.uuid,
        "driver": None if device is None else device.driver,
        "clock_hz": None if time is None else time.clock_hz,
    }


def _finite(row: dict[str, Cell]) -> dict[str, Any]:
    from memlab.roofline.documents.codec import encode

    encoded: dict[str, Any] = encode(row)
    return encoded
