"""An analysis as an HTML page: one self-contained file without scripts, fit for printing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.properties import architecture_name
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.reports.analysis_text import (
    NO_BOUNDARY,
    boundary_rows,
    boundary_text,
    machine_rows,
    ratio_facts,
    stalls_heading,
)
from memlab.roofline.reports.page.listing import listing_table
from memlab.roofline.reports.page.markup import document, escape, table
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.units import column_number, covered_text, extent_text, parameters_text, si_text

if TYPE_CHECKING:
    from memlab.roofline.analysis.analysis import Analysis


def listing_page(analysis: Analysis) -> str:
    """Write the analysis as an HTML document in which every text is escaped."""
    sections = [_ratio(analysis), _intensity(analysis)]
    if analysis.has_known_sizes:
        sections.append(_boundary(analysis))
    body = (
        f"{_header(analysis)}\n<main>\n"
        f'<div class="panels">{"".join(sections)}</div>\n'
        f"{listing_table(analysis.listing, analysis.source_name)}\n"
        f"{_machine_code(analysis)}</main>"
    )
    title = f"{analysis.kernel}, {parameters_text(analysis.parameters)}"
    return document(f"{title}: memlab", body)


def _header(analysis: Analysis) -> str:
    device, coverage = analysis.device, analysis.coverage
    facts = (
        f"{device.name}, {architecture_name(device.compute_capability)}",
        f"grid {extent_text(analysis.grid)}",
        f"block {extent_text(analysis.block)}",
        "registers unknown"
        if analysis.resources.registers_per_thread is None
        else f"{analysis.resources.registers_per_thread} registers per thread",
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
    return f"<section><h2>Intensity</h2>{table(('level', 'FLOP/B', 'bytes'), rows)}</section>"


def _boundary(analysis: Analysis) -> str:
    cost = analysis.boundary
    if cost is None:
        return f"<section><h2>Boundary checks</h2><p>{escape(NO_BOUNDARY)}</p></section>"
    headings, rows = boundary_rows(cost)
    return (
        f"<section><h2>Boundary checks</h2>{table(('', *headings), rows)}"
        f"<p>{escape(boundary_text(cost))}</p></section>"
    )


def _machine_code(analysis: Analysis) -> str:
    """Write the machine code of each line: where the warps wait, and its instructions by pipe."""
    rows = machine_rows(analysis)
    if not rows:
        return ""
    if analysis.stalls:
        text = f"<p>{escape(stalls_heading(analysis.stalls))}</p>"
        listed = table(("line", "warp time", "of that", "warp instructions"), rows)
    else:
        text, listed = "", table(("line", "warp instructions"), ((row[0], row[-1]) for row in rows))
    return f"<section><h2>Machine code by line</h2>{text}{listed}</section>"
