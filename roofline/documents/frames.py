"""Runs, and the data of the roofline picture, as pandas frames and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.documents.runs import ROW_COLUMNS, run_row
from memlab.roofline.placement import roofline_point
from memlab.roofline.run import TRAFFIC_LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas

    from memlab.roofline.documents.runs import Cell
    from memlab.roofline.run import Ceiling, Run

PICTURE_COLUMNS = (
    "record",
    "key",
    "label",
    "kind",
    "bytes_per_s",
    "flop_per_s",
    "provenance",
    "run",
    "kernel",
    "parameters",
    "tile",
    "level",
    "intensity_flop_per_byte",
    "median_s",
    "bound",
    "ceiling",
    "ceiling_flop_per_s",
    "fraction_of_ceiling",
    "op_per_s",
    "intensity_op_per_byte",
    "verification",
)
"""The columns of `picture_frame`; a cell that does not apply to its record is empty. `label` is the
ceiling's or the run's, `verification` tells whether the run's output was right."""


def runs_frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """Make a frame of runs, one row per run.

    Returns:
        The columns of `run_row` and, after `parameters`, one column for each parameter of the
        kernels that has no column yet. A kernel without the parameter has an empty cell.
    """
    import pandas

    listed = list(runs)
    names = dict.fromkeys(name for run in listed for name in run.measurement.parameters)
    after = ROW_COLUMNS.index("parameters") + 1
    added = [name for name in names if name not in ROW_COLUMNS]
    columns = [*ROW_COLUMNS[:after], *added, *ROW_COLUMNS[after:]]
    rows = [{**run.measurement.parameters, **run_row(run)} for run in listed]
    frame = pandas.DataFrame(rows, columns=columns)
    # Whole numbers stay whole in a column with empty cells.
    return frame.astype({name: frame[name].convert_dtypes().dtype for name in added})


def picture_frame(runs: Iterable[Run], ceilings: Iterable[Ceiling]) -> pandas.DataFrame:
    """Give the data of a roofline picture as one tidy frame.

    Returns:
        One row per ceiling (`record` is `ceiling`; the value is in `bytes_per_s`, `flop_per_s` or
        `op_per_s`, by `kind`) and one row per run and level where bytes move (`record` is `point`,
        at `intensity_flop_per_byte` and `flop_per_s`; under the roof of an integer pipe also at
        `intensity_op_per_byte` and `op_per_s`, the operations of that pipe). Columns are
        `PICTURE_COLUMNS`; `provenance` is that of the ceiling's value or of the point's time.
    """
    import pandas

    records = [*_ceiling_records(ceilings), *_point_records(runs)]
    return pandas.DataFrame(records, columns=list(PICTURE_COLUMNS)).astype(
        {"run": "Int64", "tile": "Int64"}
    )


def picture_csv(runs: Iterable[Run], ceilings: Iterable[Ceiling]) -> str:
    """Give `picture_frame` as CSV text."""
    return picture_frame(runs, ceilings).to_csv(index=False, lineterminator="\n")


def _ceiling_records(ceilings: Iterable[Ceiling]) -> Iterator[dict[str, Cell]]:
    for ceiling in ceilings:
        column = {"bandwidth": "bytes_per_s", "integer": "op_per_s"}.get(ceiling.kind, "flop_per_s")
        yield {
            "record": "ceiling",
            "key": ceiling.key,
            "label": ceiling.label,
            "kind": ceiling.kind,
            column: ceiling.value,
            "provenance": ceiling.provenance,
        }


def _point_records(runs: Iterable[Run]) -> Iterator[dict[str, Cell]]:
    for run in runs:
        row, point = run_row(run), roofline_point(run.measurement, run.placement)
        is_integer = point.operation == "OP"
        shared = {name: row[name] for name in PICTURE_COLUMNS if name in row}
        for level in TRAFFIC_LEVELS:
            intensity = run.placement.intensity_flop_per_byte.get(level)
            if intensity is not None:
                yield shared | {
                    "record": "point",
                    "run": run.id,
                    "provenance": run.measurement.time.provenance,
                    "level": level,
                    "intensity_flop_per_byte": intensity,
                    "op_per_s": point.per_s if is_integer else None,
                    "intensity_op_per_byte": point.intensity.get(level) if is_integer else None,
                }
