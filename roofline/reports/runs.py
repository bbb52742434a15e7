"""Runs as a table in a terminal, one row per run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from memlab.roofline.reports.run import time_label
from memlab.roofline.units import column_number, elide_middle, parameters_text, without_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.roofline.run import Run

WIDE_COLUMNS = 75
"""Width of the table with every word folded as far as it stays readable."""

WIDE_ONLY_COLUMNS = ("date", "device", "GFLOP/s", "bound")
"""Columns left out on a narrower terminal; `memlab runs show` has them."""

MAX_CELL_CHARACTERS = 300
"""Longest name in the table; `memlab runs show` has it whole."""


def runs_table(runs: Sequence[Run], width: int) -> Table:
    """Make a table with one row per run.

    Args:
        runs: The runs, in the order of the rows.
        width: Columns of the terminal. Words fold where 80 are too few; below `WIDE_COLUMNS` the
            columns of `WIDE_ONLY_COLUMNS` are left out.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns: dict[str, dict[str, Any]] = {
        "id": right,
        "date": {"no_wrap": True},
        "kernel": {"overflow": "fold", "min_width": 9},
        "parameters": {"overflow": "fold", "min_width": 10},
        "device": {"overflow": "fold"},
        "time": right,
        "GFLOP/s": right,
        "bound": {"no_wrap": True},
        "roof": right,
        "ok": {"no_wrap": True},
    }
    if any(map(_is_user_kernel, runs)):  # their names are longer
        columns["parameters"]["max_width"] = 11
    shown = [name for name in columns if width >= WIDE_COLUMNS or name not in WIDE_ONLY_COLUMNS]
    for name in shown:
        table.add_column(name, **columns[name])
    for run in runs:
        cells = dict(zip(columns, _cells(run), strict=True))
        table.add_row(*(cells[name] for name in shown))
    return table


def _is_user_kernel(run: Run) -> bool:
    """Whether this is a run of a user kernel, whose launch stands among the parameters."""
    return "grid" in run.measurement.parameters


def _cells(run: Run) -> list[str]:
    measurement, placement = run.measurement, run.placement
    fraction = placement.fraction_of_ceiling
    invalid = "!" if fraction > 1 else ""
    verified = {"passed": "ok", "failed": "[bold red]NO[/]", "skipped": "-"}
    return [
        "" if run.id is None else str(run.id),
        run.created_at[:10],
        escape(elide_middle(measurement.kernel, MAX_CELL_CHARACTERS)),
        escape(
            elide_middle(
                parameters_text(without_lists(measurement.parameters)), MAX_CELL_CHARACTERS
            )
        ),
        escape(measurement.device.key),
        time_label(measurement.time),
        column_number(placement.flop_per_s / 1e9),
        placement.bound,
        f"{fraction:.0%}{invalid}",
        verified[measurement.verification.status],
    ]
