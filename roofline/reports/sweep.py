"""A sweep as a table in a terminal: the best point first, then why others are not done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.placement import roofline_point
from memlab.roofline.reports.parts import stack_sections
from memlab.roofline.reports.run import time_label
from memlab.roofline.sweep.objective import TIME
from memlab.roofline.units import column_number, elide_middle
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from memlab.roofline.run import Run
    from memlab.roofline.sweep.records import Sweep, SweepRow
    from memlab.roofline.sweep.space import Axis, Value

MAX_VALUE_CHARACTERS = 24
"""Longest value of an axis in the table; CSV and JSON have it whole."""

MAX_POINTS_PER_REASON = 6
"""The most points that are listed with one reason."""

STATUS_WORDS = {
    "wrong": "wrong output",
    "fault": "fault",
    "impossible": "impossible",
    "lost": "lost, run again by --resume",
}


def sweep_report(sweep: Sweep) -> RenderableType:
    """Lay out a sweep: what it varied, the ranking, and the points that are not done."""
    return stack_sections(
        (_heading(sweep), _ranking(sweep) if sweep.done else None, *_failures(sweep))
    )


def _heading(sweep: Sweep) -> RenderableType:
    first, axes = sweep.axes[0], sweep.varying
    kernels = ", ".join(map(str, first.values))
    made = f"{len(sweep.done)} of {len(sweep.rows)} {plural(len(sweep.rows), 'point')} done"
    if sweep.excluded:
        made += f", {sweep.excluded} left out"
    reused = sum(row.reused for row in sweep.rows)
    if reused:
        made += f", {reused} from earlier runs"
    order = "highest" if sweep.objective.highest else "lowest"
    fixed = {
        axis.name: axis.values[0]
        for axis in sweep.axes
        if not axis.varies and axis.kind not in ("kernel",) and axis.values[0] != ""
    }
    lines = [
        Text.assemble(
            (kernels, "bold cyan"),
            "  ",
            ", ".join(f"{name} {value}" for name, value in fixed.items()),
        ),
        Text(f"{made}; best first: {order} {sweep.objective.label}", style="dim"),
    ]
    varied = ", ".join(f"{axis.name} ({len(axis.values)})" for axis in axes)
    if varied:
        lines.insert(1, Text(f"varied: {varied}", style="dim"))
    if sweep.name:
        lines.append(Text(f"stored as {sweep.name}", style="dim"))
    return Text("\n").join(lines)


def _ranking(sweep: Sweep) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    axes = sweep.varying or sweep.axes[:1]
    other = sweep.objective.name != TIME
    for axis in axes:
        folding: dict[str, Any] = {"overflow": "fold"}
        table.add_column(axis.name, **(right if axis.is_numeric else folding))
    operations = {roofline_point(run.measurement, run.placement).operation for run in sweep.runs}
    unit = operations.pop() if len(operations) == 1 else "FLOP"  # OP where all compute integers
    if other:
        table.add_column(sweep.objective.label, justify="right")
    table.add_column("time", **right)
    table.add_column(f"G{unit}/s", **right)
    table.add_column("DRAM GB/s", **right)
    table.add_column("roof", **right)
    table.add_column("bound", no_wrap=True)
    for row in sweep.done:
        if row.run is not None:
            objective = [sweep.objective.text(row.value or 0.0)] if other else []
            table.add_row(*_axis_cells(row, axes), *objective, *_figures(row.run, unit))
    return table


def _axis_cells(row: SweepRow, axes: Sequence[Axis]) -> list[str]:
    return [escape(_value_text(row.values.get(axis.name, "-"))) for axis in axes]


def _value_text(value: Value) -> str:
    return elide_middle(str(value), MAX_VALUE_CHARACTERS) or "default"


def _figures(run: Run, unit: str) -> list[str]:
    """The figures of a run; its rate is that of the operations of the column."""
    counters, time = run.measurement.counters, run.measurement.time
    dram = (counters.dram_read_bytes + counters.dram_write_bytes) / time.median_s
    fraction = run.placement.fraction_of_ceiling
    point = roofline_point(run.measurement, run.placement)
    rate = point.per_s if point.operation == unit else run.placement.flop_per_s
    invalid = "!" if fraction > 1 else ""
    return [
        time_label(time),
        column_number(rate / 1e9) if rate else "-",
        column_number(dram / 1e9),
        f"{fraction:.0%}{invalid}",
        ceiling_label(run.placement.bound),
    ]


def _failures(sweep: Sweep) -> list[RenderableType]:
    """A section for each kind of point that is not done; points with one reason together."""
    axes = sweep.varying or sweep.axes[:1]
    sections: list[RenderableType] = []
    for status, words in STATUS_WORDS.items():
        rows = [row for row in sweep.rows if row.status == status]
        if not rows:
            continue
        reasons: dict[str, list[str]] = {}
        for row in rows:
            named = ", ".join(
                f"{axis.name} {_value_text(row.values[axis.name])}"
                for axis in axes
                if axis.name in row.values
            )
            reasons.setdefault(row.reason, []).append(named)
        lines: list[RenderableType] = [
            Text(f"{len(rows)} {plural(len(rows), 'point')}: {words}", style="bold")
        ]
        for reason, points in reasons.items():
            shown = "; ".join(points[:MAX_POINTS_PER_REASON])
            if len(points) > MAX_POINTS_PER_REASON:
                shown += f"; and {len(points) - MAX_POINTS_PER_REASON} more"
            lines += [Padding(Text(shown), (0, 0, 0, 2)), Padding(Text(reason), (0, 0, 0, 4))]
        sections.append(Group(*lines))
    return sections
