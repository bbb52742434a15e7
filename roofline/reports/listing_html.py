"""An analysis as an HTML page: one self-contained file without scripts, fit for printing."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from memlab.device.properties import architecture_name
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.reports.analysis_text import (
    NO_BOUNDARY,
    boundary_rows,
    boundary_text,
    compact_count,
    heat_level,
    ratio_facts,
    wastes_bus,
    wastes_lanes,
    wastes_passes,
)
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.units import column_number, covered_text, extent_text, parameters_text, si_text
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlab.roofline.analysis.analysis import Analysis
    from memlab.roofline.analysis.listing import ListingItem

HTML_COLUMNS = (
    ("share", "share of the bytes through the L1 / shared port"),
    ("requests", "warp-level instructions to global memory"),
    ("sectors", "32-byte sectors per request"),
    ("bus", "bytes requested over bytes moved in sectors"),
    ("excessive", "wavefronts of shared memory beyond the ideal"),
    ("local", "32-byte sectors of local memory"),
    ("passes", "addresses that the constant cache serves one after another, per request"),
    ("FLOP", "floating-point operations executed; an FMA is two"),
    ("lanes off", "lanes of issued warp instructions that did nothing"),
)
"""Headings of the columns, and their explanations."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --quiet: #66717d; --line: #e3e7eb; --paper: #fff;
  --panel: #f7f9fa; --accent: #0072b2; --bad: #b03a00; --heat: 213 94 0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --quiet: #98a3ae; --line: #303842;
  --paper: #14191f; --panel: #1b2229; --accent: #56b4e9; --bad: #ff9466; --heat: 230 110 20; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 2rem 4rem; max-width: 94rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 1.7rem; font-weight: 650; letter-spacing: -.01em; }
h1 span { color: var(--quiet); font-weight: 400; font-size: 1.1rem; margin-left: .6rem; }
h2 { margin: 0 0 .6rem; font-size: .8rem; font-weight: 650; color: var(--quiet);
  text-transform: uppercase; letter-spacing: .06em; }
header p { margin: .25rem 0 0; color: var(--quiet); }
.panels { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.6rem 0 2rem; }
.panels section { flex: 1 1 20rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: 10px; padding: 1rem 1.2rem; overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt { color: var(--quiet); } dd { margin: 0; }
.big { margin: 0 0 .7rem; font-size: 1.7rem; font-weight: 650; color: var(--accent); }
.big small { font-size: .95rem; font-weight: 400; color: var(--quiet); }
.panels section:last-child { flex: 1.4 1 27rem; }
table { border-collapse: collapse; width: 100%; }
th { font-weight: 500; color: var(--quiet); text-align: right; white-space: nowrap; }
td { text-align: right; white-space: nowrap; }
th, td { padding: .12rem 0 .12rem .8rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.panels p { margin: .7rem 0 0; }
.listing { border: 1px solid var(--line); border-radius: 10px; overflow-x: auto; }
.listing table { font-size: 13px; line-height: 1.55; }
.listing th, .listing td { padding: 0 .6rem; vertical-align: baseline; }
.listing thead th { position: sticky; top: 0; background: var(--panel);
  border-bottom: 1px solid var(--line); padding-top: .45rem; padding-bottom: .45rem;
  text-decoration: underline dotted var(--line); text-underline-offset: 3px; cursor: help; }
.listing thead th:nth-child(-n+2) { text-align: left; text-decoration: none; cursor: auto; }
.listing td { width: 1%; }
.listing .number { color: var(--quiet); text-align: right; user-select: none; }
.listing .code { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4;
  width: auto; min-width: 16rem; padding-left: .4rem;
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.listing tr.cold .code, .listing tr.access .code { color: var(--quiet); }
.listing tr.access .code { font-style: italic; }
.listing tr.h1 { background: rgb(var(--heat) / .07); }
.listing tr.h2 { background: rgb(var(--heat) / .16); }
.listing tr.h3 { background: rgb(var(--heat) / .28); }
.listing tr.h4 { background: rgb(var(--heat) / .42); }
.listing tr:hover td { box-shadow: inset 0 0 0 99px rgb(0 114 178 / .07); }
.poor { color: var(--bad); font-weight: 650; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; margin: .8rem .2rem 0;
  color: var(--quiet); font-size: 13px; }
.legend i { display: inline-block; width: 1.1em; height: 1.1em; border-radius: 3px;
  vertical-align: -.2em; margin-right: .4em; }
@media (max-width: 800px) {
  body { padding: 1.5rem 1rem 3rem; }
  .panels table { font-size: 12px; }
  .panels th, .panels td { padding-left: .4rem; }
  .panels section { padding: 1rem .8rem; }
  .listing, .listing table, .listing tbody { display: block; }
  .listing thead { display: none; }
  .listing tr { display: flex; flex-wrap: wrap; padding-left: 2.6rem; }
  .listing td { width: auto; }
  .listing td:empty { display: none; }
  .listing .number { flex: 0 0 2.6rem; margin-left: -2.6rem; padding-left: .2rem; }
  .listing .number:empty { display: block; }
  .listing .code { flex: 0 0 100%; min-width: 0; }
  .listing td[data-name] { font-size: 12px; padding-left: .4rem; }
  .listing td[data-name]::before { content: attr(data-name) " "; color: var(--quiet);
    font-weight: 400; }
}
@media print { body { padding: 0; max-width: none; } .listing { overflow: visible; } }
"""


def escape(text: str) -> str:
    """Escape text for the page; control characters are written out."""
    return html.escape(printable(text, but="\t"))


def listing_page(analysis: Analysis) -> str:
    """Write the analysis as an HTML document in which every text is escaped."""
    title = f"{analysis.kernel}, {parameters_text(analysis.parameters)}"
    sections = [_ratio(analysis), _intensity(analysis)]
    if analysis.has_known_sizes:
        sections.append(_boundary(analysis))
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}: memlab</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            _header(analysis),
            f'<div class="panels">{"".join(sections)}</div>',
            _listing(analysis),
            "</body>",
            "</html>",
            "",
        )
    )


def _header(analysis: Analysis) -> str:
    device, coverage = analysis.device, analysis.coverage
    facts = (
        f"{device.name}, {architecture_name(device.compute_capability)}",
        f"grid {extent_text(analysis.grid)}",
        f"block {extent_text(analysis.block)}",
        f"{analysis.resources.registers_per_thread} registers per thread",
        f"{covered_text(coverage)} emulated",
        *([coverage.remark] if coverage.remark else []),
        "counted, not timed",
    )
    return (
        f"<header><h1>{escape(analysis.kernel)}"
        f"<span>{escape(parameters_text(analysis.parameters))}</span></h1>"
        f"<p>{escape(' · '.join(facts))}</p></header>"
    )


def _ratio(analysis: Analysis) -> str:
    facts = "".join(
        f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in ratio_facts(analysis)
    )
    ratio = analysis.ratio
    big = ""
    if ratio is not None:
        big = f'<p class="big">{column_number(ratio.flop_per_byte)} <small>FLOP/B</small></p>'
    return f"<section><h2>Compute to global memory access</h2>{big}<dl>{facts}</dl></section>"


def _intensity(analysis: Analysis) -> str:
    intensity, moved = analysis.intensity_flop_per_byte, analysis.bytes_moved
    rows = [
        (
            ceiling_label(level),
            "-" if intensity[level] is None else column_number(intensity[level] or 0.0),
            si_text(moved[level], "B"),
        )
        for level in TRAFFIC_LEVELS
    ]
    return f"<section><h2>Intensity</h2>{_table(('level', 'FLOP/B', 'bytes'), rows)}</section>"


def _boundary(analysis: Analysis) -> str:
    cost = analysis.boundary
    if cost is None:
        return f"<section><h2>Boundary checks</h2><p>{escape(NO_BOUNDARY)}</p></section>"
    headings, rows = boundary_rows(cost)
    return (
        f"<section><h2>Boundary checks</h2>{_table(('', *headings), rows)}"
        f"<p>{escape(boundary_text(cost))}</p></section>"
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell.strip())}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _listing(analysis: Analysis) -> str:
    """Write the annotated source; columns without any figure are left out."""
    rows: list[tuple[str, str, str, list[tuple[str, str]]]] = []
    for line in analysis.listing:
        level = heat_level(line.heat)
        look = f"h{level}" if level else "" if line.counters else "cold"
        rows.append((look, str(line.number or ""), line.text, _figure_cells(line)))
        indent = line.text[: len(line.text) - len(line.text.lstrip())] + "    "
        rows += [
            ("access", "", indent + access.text, _figure_cells(access))
            for access in line.mixed_accesses
        ]
    used = [column for column in range(len(HTML_COLUMNS)) if any(row[3][column][0] for row in rows)]
    head = "".join(
        f'<th scope="col" title="{escape(explanation)}">{escape(name)}</th>'
        for name, explanation in (HTML_COLUMNS[column] for column in used)
    )
    body = "\n".join(
        _row(look, number, text, [(HTML_COLUMNS[column][0], *figures[column]) for column in used])
        for look, number, text, figures in rows
    )
    names = ("warm", "warmer", "hot", "hottest")
    shares = ("0.1%", "5%", "20%", "50%")
    legend = "".join(
        f'<span><i style="background: rgb(var(--heat) / {alpha})"></i>{name}: from {share} '
        "of the traffic</span>"
        for alpha, name, share in zip((0.07, 0.16, 0.28, 0.42), names, shares, strict=True)
    )
    return (
        '<div class="listing"><table><thead><tr><th></th>'
        f'<th scope="col">{escape(analysis.source_name)}</th>{head}</tr></thead>'
        f'<tbody>\n{body}\n</tbody></table></div><p class="legend">{legend}</p>'
    )


def _figure_cells(line: ListingItem) -> list[tuple[str, str]]:
    """Return the text and the class of the cell of each of `HTML_COLUMNS`."""
    counted = line.counters
    if counted is None:
        return [("", "")] * len(HTML_COLUMNS)
    bus, off = line.bus_utilisation, line.lanes_off_share or 0.0
    per_request, passes = line.sectors_per_request, line.passes_per_request
    return [
        (f"{100 * line.heat:.1f}%" if heat_level(line.heat) else "", ""),
        (compact_count(counted.global_requests), ""),
        ("" if per_request is None else f"{per_request:.3g}", ""),
        ("" if bus is None else f"{100 * bus:.0f}%", "poor" if wastes_bus(line) else ""),
        (compact_count(counted.shared_excessive_wavefronts), "poor"),
        (compact_count(counted.local_sectors), ""),
        ("" if passes is None else f"{passes:.3g}", "poor" if wastes_passes(line) else ""),
        (compact_count(counted.flop), ""),
        (f"{100 * off:.1f}%" if off >= 0.0005 else "", "poor" if wastes_lanes(line) else ""),
    ]


def _row(look: str, number: str, text: str, figures: Iterable[tuple[str, str, str]]) -> str:
    """Write a row; a figure is its column's name, its text and its class."""
    cells = "".join(
        f'<td class="{look_}" data-name="{escape(name)}">{figure}</td>' if figure else "<td></td>"
        for name, figure, look_ in figures
    )
    return (
        f'<tr class="{look}"><td class="number">{number}</td>'
        f'<td class="code">{escape(text)}</td>{cells}</tr>'
    )
