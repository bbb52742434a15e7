"""A sweep in the report page: its picture, its ranking, and why points are not done."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.reports.page.chart import roof_text
from memlab.roofline.reports.page.markup import escape
from memlab.roofline.reports.run import rate_text, time_label
from memlab.roofline.sweep.objective import TIME
from memlab.roofline.units import elide_middle
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.roofline.reports.page.chart import ChartRun
    from memlab.roofline.sweep.records import Sweep, SweepRow
    from memlab.roofline.sweep.space import Axis

MAX_VALUE_CHARACTERS = 60
"""The longest value of an axis in the table."""


def sweep_section(sweep: Sweep, named: Mapping[int, ChartRun]) -> str:
    """Write the section of a sweep.

    Args:
        sweep: The sweep.
        named: The runs of the page by the `id` of their records.
    """
    name = sweep.name or "not stored"
    done, count = len(sweep.done), len(sweep.rows)
    order = "highest" if sweep.objective.highest else "lowest"
    varied = ", ".join(f"{axis.name} ({len(axis.values)})" for axis in sweep.varying)
    facts = f"{done} of {count} {plural(count, 'point')} done; best first: {order} "
    facts += f"{sweep.objective.label}" + (f"; varied: {varied}" if varied else "")
    return f"""<section class="sweep" aria-label="Sweep {escape(name)}">
<h2>Sweep: {escape(name)}</h2>
<p class="quiet">{escape(facts)}</p>
{_picture(sweep)}
{_ranking(sweep, named) if sweep.done else ""}
{_not_done(sweep)}
</section>"""


def _picture(sweep: Sweep) -> str:
    """Write the chart over the axes; the page has a roofline of its own."""
    if not sweep.done:
        return ""
    from memlab.roofline.plots.figure import render_figure
    from memlab.roofline.plots.sweep import draw_axes

    figure = draw_axes(sweep)
    if figure is None:
        return ""
    image = render_figure(figure, "svg")
    varied = " and ".join(axis.name for axis in sweep.varying)
    text = escape(f"{sweep.objective.label} by {varied}; the table has the figures")
    data = base64.b64encode(image).decode()
    return f'<img class="picture" alt="{text}" src="data:image/svg+xml;base64,{data}">'


def _ranking(sweep: Sweep, named: Mapping[int, ChartRun]) -> str:
    axes = sweep.varying or sweep.axes[:1]
    other = sweep.objective.name != TIME
    headings = [axis.name for axis in axes] + ([sweep.objective.label] if other else [])
    headings += ["time", "rate", "of its roof", "bound by"]
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    rows = "\n".join(
        _row(sweep, row, axes, named.get(id(row.run)), other) for row in sweep.done if row.run
    )
    return (
        '<div class="wide tall" role="region" aria-label="Ranking" tabindex="0">'
        f'<table class="changes ranking"><thead><tr>{head}<td></td></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(
    sweep: Sweep, row: SweepRow, axes: Sequence[Axis], named: ChartRun | None, other: bool
) -> str:
    run = row.run
    if run is None:
        return ""
    cells = [
        elide_middle(str(row.values.get(axis.name, "-")), MAX_VALUE_CHARACTERS) for axis in axes
    ]
    cells += [sweep.objective.text(row.value or 0.0)] if other else []
    cells += [
        time_label(run.measurement.time),
        rate_text(run),
        roof_text(run),
        ceiling_label(run.placement.bound),
    ]
    link = "" if named is None else f'<a href="#{named.anchor}">details</a>'
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}<td>{link}</td></tr>"


def _not_done(sweep: Sweep) -> str:
    reasons: dict[tuple[str, str], list[SweepRow]] = {}
    for row in sweep.rows:
        if row.status != "done":
            reasons.setdefault((row.status, row.reason), []).append(row)
    if not reasons:
        return ""
    items = "".join(
        f"<li><strong>{escape(status)}</strong>: {escape(reason)} <span class='quiet'>"
        f"({escape('; '.join(_point(sweep, row) for row in rows))})</span></li>"
        for (status, reason), rows in reasons.items()
    )
    return f"<h4>Not done</h4><ul>{items}</ul>"


def _point(sweep: Sweep, row: SweepRow) -> str:
    return ", ".join(f"{axis.name} {row.values.get(axis.name, '-')}" for axis in sweep.varying)
