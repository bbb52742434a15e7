"""The roofline picture: a chart with its kernels, a side panel, a legend and a table of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.ceilings import ceilings_by_key
from memlab.roofline.plots.axes import draw_chart, is_on_chart
from memlab.roofline.plots.figure import NOTE_INCHES, add_axes, new_figure, write_notes
from memlab.roofline.plots.legend import draw_legend, draw_table, table_inches
from memlab.roofline.plots.side_panel import draw_side_panel
from memlab.roofline.plots.style import drawn_apart, run_styles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Ceiling, Run

MAX_RUNS = 12
"""More kernels than these cannot be told apart; the newest are drawn, the others counted."""

ROOFLINE_NOTE = (
    "Read each point under the ceiling of its own level; requested bytes have none, because caches "
    "serve part of them. Dots lead to the kernel's lowest ceiling; the % is of that ceiling."
)

INTEGER_NOTE = (
    "Kernels without FLOPs under the roof of an integer pipe are drawn by the integer operations "
    "of that pipe, in OP/s and OP/B."
)

CHART_TOP_INCHES, CHART_HEIGHT_INCHES = 0.95, 4.7
TABLE_TOP_INCHES = CHART_TOP_INCHES + CHART_HEIGHT_INCHES + 0.75
FOOT_INCHES = 0.3


def draw_roofline(
    runs: Sequence[Run],
    ceilings: Sequence[Ceiling],
    device_name: str,
    date: str,
    measured: Sequence[Ceiling] = (),
    *,
    title: str = "",
    all_runs: bool = False,
) -> Figure:
    """Draw runs of one device under its ceilings.

    Args:
        runs: Oldest first.
        ceilings: The device's ceilings; they alone decide the axes.
        device_name: For the title.
        date: For the title, as a text.
        measured: The rates that micro-benchmarks reached, drawn next to the ceilings.
        title: The title; the device's name by default.
        all_runs: Whether all runs are drawn. Else the newest is, of those with equal kernel,
            parameters, name and provenance.

    Returns:
        A figure of 14 inches by about 8.5, higher with more than five runs.
    """
    distinct = list(runs) if all_runs else _newest_distinct_runs(runs)
    shown = run_styles(distinct[-MAX_RUNS:])
    notes = _note_lines(shown, ceilings, older=len(distinct) - len(shown))
    height = TABLE_TOP_INCHES + table_inches(len(shown)) + FOOT_INCHES + NOTE_INCHES * len(notes)
    provenances = sorted({style.run.measurement.time.provenance for style in shown})
    times = f"times {' and '.join(provenances)}" if provenances else ""
    right = "  ·  ".join(filter(None, (device_name if title else "", times, date)))
    with new_figure(height, title or f"Roofline of {device_name}", right) as figure:
        chart = add_axes(figure, 0.95, CHART_TOP_INCHES, 7.3, CHART_HEIGHT_INCHES)
        draw_chart(chart, shown, ceilings, measured)
        panel = add_axes(figure, 11.1, CHART_TOP_INCHES + 0.2, 2.55, 2.45)
        dram = ceilings_by_key(ceilings).get("dram")
        draw_side_panel(panel, shown, dram.value if dram else 0.0)
        wrong = any(style.is_wrong for style in shown)
        draw_legend(figure, 10.4, CHART_TOP_INCHES + 3.5, wrong=wrong)
        draw_table(figure, shown, TABLE_TOP_INCHES)
        write_notes(figure, notes)
    return figure


def _newest_distinct_runs(runs: Sequence[Run]) -> list[Run]:
    newest: dict[object, Run] = {}
    for run in runs:
        newest.pop(drawn_apart(run), None)  # so that it moves to the end
        newest[drawn_apart(run)] = run
    return list(newest.values())


def _note_lines(shown: Sequence[RunStyle], ceilings: Sequence[Ceiling], older: int) -> list[str]:
    """The notes under the table: how to read the chart, and the runs that it lacks."""
    notes = [ROOFLINE_NOTE] if shown else []
    if any(style.point.operation == "OP" for style in shown):
        notes.append(INTEGER_NOTE)
    off_chart = [style.label for style in shown if not is_on_chart(style, ceilings)]
    if off_chart:
        notes.append(f"Not on the chart (no FLOPs, or beyond its axes): {', '.join(off_chart)}.")
    if any(style.is_wrong for style in shown):
        notes.append("Crossed out: the output is wrong, so the time is that of another program.")
    if older:
        notes.append(f"Only the newest {len(shown)} runs are drawn: {older} older not.")
    return notes
