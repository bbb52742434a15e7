"""The report page: runs under an interactive roofline, their figures, source and machine code."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from memlab.roofline.ceilings import CEILING_LABELS, ceiling_label
from memlab.roofline.placement import bytes_moved, effective_bytes_per_s, roofline_point
from memlab.roofline.reports.page.chart import (
    chart_data,
    chart_runs,
    device_names,
    parameters_line,
    roof_text,
    time_note,
)
from memlab.roofline.reports.page.comparison import comparison_section
from memlab.roofline.reports.page.markup import asset, document, escape, json_script, table
from memlab.roofline.reports.page.run import SourceText, known_lines, run_section
from memlab.roofline.reports.page.sweep import sweep_section
from memlab.roofline.reports.parts import percent
from memlab.roofline.reports.run import rate_text, time_label
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.units import column_number, elide_middle, si_text
from memlab.text import plural, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlab.device.machine_code.listing import MachineListing
    from memlab.roofline.comparison.records import Comparison
    from memlab.roofline.reports.page.chart import ChartRun, DeviceRoofs
    from memlab.roofline.run import Run
    from memlab.roofline.sweep.records import Sweep

STYLES = ("base.css", "report.css")
SCRIPTS = ("dom.js", "scales.js", "labels.js", "chart.js", "download.js", "report.js")

DATA_ID = "memlab-data"
"""The id of the element that holds the data of the script."""

MAX_TITLE_CHARACTERS = 200

MAX_OPEN_RUNS = 1
"""The sections of more runs are folded at first."""

_VERIFIED = {
    "passed": '<span class="good">✓ passed</span>',
    "failed": '<span class="bad">✗ failed</span>',
    "skipped": '<span class="quiet">not verified</span>',
}


@dataclass(frozen=True)
class ReportedRun:
    """A run with what is known of its code.

    Attributes:
        run: The run.
        source: Its source with counters; None for the lines that the run holds itself.
        machine_code: Its machine code; None where it is not known.
    """

    run: Run
    source: SourceText | None = None
    machine_code: MachineListing | None = None


def report_document(
    runs: Sequence[ReportedRun],
    devices: Sequence[DeviceRoofs],
    title: str,
    date: str,
    comparisons: Sequence[Comparison] = (),
    sweeps: Sequence[Sweep] = (),
) -> str:
    """Write the report page, in which every text is escaped.

    Args:
        runs: The runs, one or more, in the order of the page.
        devices: Their devices, each once.
        title: The title, as text.
        date: When the page was made, as text.
        comparisons: Comparisons of these runs.
        sweeps: Sweeps, of whose runs some are these.
    """
    title = printable(elide_middle(title, MAX_TITLE_CHARACTERS))
    named = chart_runs([reported.run for reported in runs], devices)
    by_record = {id(chart_run.run): chart_run for chart_run in named}
    data = chart_data(named, devices) | {
        "title": title,
        "arrows": [
            [by_record[id(pair.a)].key, by_record[id(pair.b)].key]
            for comparison in comparisons
            for pair in comparison.pairs
        ],
    }
    body = "\n".join(
        (
            _header(title, device_names(devices), len(runs), date),
            "<main>",
            _roofline([reported.run for reported in runs], devices),
            _overview(named),
            *(comparison_section(comparison, by_record) for comparison in comparisons),
            *(sweep_section(sweep, by_record) for sweep in sweeps),
            _details(runs, named),
            "</main>",
            json_script(DATA_ID, data),
        )
    )
    return document(f"{title}: memlab", body, STYLES, SCRIPTS)


def _header(title: str, devices: Sequence[str], count: int, date: str) -> str:
    facts = " · ".join((*devices, f"{count} {plural(count, 'run')}", date))
    return (
        f'<header class="top"><div><h1>{escape(title)}</h1><p>{escape(facts)}</p></div>'
        '<div class="tools needs-script">'
        '<button type="button" id="theme">Dark theme</button>'
        '<button type="button" id="print">Print</button></div></header>'
    )


def _roofline(runs: Iterable[Run], devices: Sequence[DeviceRoofs]) -> str:
    levels = (("all", "All levels"), *((key, ceiling_label(key)) for key in TRAFFIC_LEVELS))
    radios = "".join(
        f'<label><input type="radio" name="level" value="{key}">'
        f"<span>{escape(label[:1].upper() + label[1:])}</span></label>"
        for key, label in levels
    )
    options = "".join(
        f'<option value="{place}">{escape(name)}</option>'
        for place, name in enumerate(device_names(devices))
    )
    chooser = f'<label class="device">Device <select id="device">{options}</select></label>'
    return Template(asset("roofline.html")).substitute(
        chooser=chooser if len(devices) > 1 else "",
        levels=radios,
        look="" if any(map(_has_point, runs)) else "empty",
    )


def _has_point(run: Run) -> bool:
    return roofline_point(run.measurement, run.placement).per_s > 0


def _overview(runs: Sequence[ChartRun]) -> str:
    """Write the table of runs, which is the chart's legend too."""
    several = len(runs) > 1
    picked = '<td class="needs-script"></td>' if several else ""
    headings = ("Kernel", "Time", "Rate", "Of its roof", "Bound by", "Output")
    head = "".join(
        f'<th scope="col"><button type="button" class="sort needs-script">{heading}</button>'
        f'<span class="no-script">{heading}</span></th>'
        for heading in headings
    )
    several_devices = len({named.device for named in runs}) > 1
    rows = "\n".join(
        _overview_row(
            named,
            several,
            number,
            f" · {named.run.measurement.device.key}" if several_devices else "",
        )
        for number, named in enumerate(runs, 1)
    )
    filters = """<div class="controls needs-script">
<label class="filter">Filter <input type="search" id="filter" autocomplete="off" spellcheck="false"
 placeholder="kernel, parameter, bound"></label>
<button type="button" id="show-all">Show all</button><span id="shown" role="status"></span>
</div>"""
    return f"""<section id="runs" aria-labelledby="runs-title">
<h2 id="runs-title">Runs</h2>
{filters if several else ""}
<div class="wide" role="region" aria-labelledby="runs-title" tabindex="0">
<table class="runs"><thead><tr>{picked}{head}{picked}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
{_busy_table(runs) if several else ""}
{_levels_table(runs)}
</section>"""


def _overview_row(named: ChartRun, several: bool, number: int, where: str) -> str:
    run, key = named.run, named.key
    measurement, placement = run.measurement, run.placement
    label = escape(named.label)
    share = placement.fraction_of_ceiling
    values = (
        named.label,
        measurement.time.median_s,
        placement.flop_per_s or effective_bytes_per_s(measurement),
        share,
        ceiling_label(placement.bound),
        measurement.verification.status,
    )
    cells = (
        f'<a href="#{named.anchor}">{label}</a>'
        f"<small>{escape(parameters_line(run) + where)}</small>",
        f"{escape(time_label(measurement.time))}<small>{escape(time_note(measurement.time))}</small>",
        escape(rate_text(run)),
        f'<span class="bar"><i style="width: {100 * min(share, 1):.1f}%"></i></span>'
        f"<small>{escape(roof_text(run))}</small>"
        + ('<small class="bad">above a physical limit</small>' if share > 1 else ""),
        escape(ceiling_label(placement.bound)),
        _VERIFIED[measurement.verification.status],
    )
    tagged = [
        f'<td data-value="{escape(str(value))}">{cell}</td>'
        for value, cell in zip(values, cells, strict=True)
    ]
    tagged[0] = tagged[0].replace("<td", '<th scope="row"', 1).removesuffix("</td>") + "</th>"
    picture = f'<span class="key" data-key="{key}"></span>'
    if not several:
        tagged[0] = tagged[0].replace(">", f">{picture} ", 1)
        return f'<tr data-key="{key}">{"".join(tagged)}</tr>'
    return (
        f'<tr data-key="{key}"><td class="needs-script pick"><label>'
        f'<input type="checkbox" checked aria-label="Show {label}">{picture}'
        f"<small>{number}</small></label></td>"
        f'{"".join(tagged)}<td class="needs-script"><button type="button" class="only" '
        f'aria-label="Show {label} only">only</button></td></tr>'
    )


def _busy_table(runs: Sequence[ChartRun]) -> str:
    """Write the share of the time for which each resource is busy, of kernels without FLOPs too."""
    busy = [named.run.placement.busy for named in runs]
    keys = [key for key in CEILING_LABELS if any(shares.get(key, 0) > 0 for shares in busy)]
    if not keys:
        return ""
    head = "".join(f'<th scope="col">{escape(ceiling_label(key))}</th>' for key in keys)
    rows = "\n".join(
        f'<tr data-key="{named.key}"><th scope="row">{escape(named.label)}</th>'
        + "".join(_busy_cell(shares.get(key, 0.0)) for key in keys)
        + "</tr>"
        for named, shares in zip(runs, busy, strict=True)
    )
    return (
        "<details open><summary>Share of the time for which each resource is busy</summary>"
        '<div class="wide" role="region" aria-label="Busy resources" tabindex="0">'
        '<table class="shares"><thead><tr><td></td>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _busy_cell(share: float) -> str:
    if share <= 0:
        return "<td></td>"
    return (
        f'<td><span class="bar"><i style="width: {100 * min(share, 1):.1f}%"></i></span>'
        f"{percent(share)}</td>"
    )


def _levels_table(runs: Sequence[ChartRun]) -> str:
    """Write the places of the runs in the chart: intensity and bytes at each level."""
    rows = []
    for named in runs:
        if named.run.measurement.coverage.not_counted:
            continue
        moved = bytes_moved(named.run.measurement)
        point = roofline_point(named.run.measurement, named.run.placement)
        cells = []
        for level in TRAFFIC_LEVELS:
            intensity = point.intensity.get(level)
            number = "-" if intensity is None else column_number(intensity)
            if point.operation == "OP":
                number += " OP/B"
            cells.append(f"{number} ({si_text(moved[level], 'B')})")
        rows.append((named.label, *cells))
    if not rows:
        return ""
    headings = ("kernel", *(ceiling_label(level) for level in TRAFFIC_LEVELS))
    return (
        "<details><summary>Intensity in FLOP/B and bytes, by level</summary>"
        '<div class="wide" role="region" aria-label="Intensity and bytes by level" tabindex="0">'
        f"{table(headings, rows)}</div></details>"
    )


def _details(runs: Sequence[ReportedRun], named: Sequence[ChartRun]) -> str:
    sections = "\n".join(
        run_section(
            chart_run,
            reported.source or _own_source(reported.run),
            reported.machine_code,
            is_open=len(runs) <= MAX_OPEN_RUNS,
        )
        for reported, chart_run in zip(runs, named, strict=True)
    )
    buttons = (
        '<div class="controls needs-script"><button type="button" id="unfold">Open all</button>'
        '<button type="button" id="fold">Close all</button></div>'
    )
    return f"""<section id="details" aria-labelledby="details-title">
<h2 id="details-title">Details</h2>
{buttons if len(runs) > 1 else ""}
{sections}
</section>"""


def _own_source(run: Run) -> SourceText | None:
    lines = known_lines(run)
    return SourceText(run.measurement.kernel, lines) if lines else None
