"""The annotated source as an HTML table: each line with its counters, coloured by its traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.reports.analysis_text import (
    compact_count,
    heat_level,
    wastes_bus,
    wastes_lanes,
    wastes_passes,
)
from memlab.roofline.reports.page.markup import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlab.roofline.analysis.listing import ListedLine, ListingItem

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
    ("integer OP", "integer instructions executed, summed over threads"),
)
"""Headings of the columns, and their explanations."""

_HEATS = (("warm", "0.1%"), ("warmer", "5%"), ("hot", "20%"), ("hottest", "50%"))
"""Name and least share of the traffic of each level of heat; `base.css` has their colours."""

GAP = "\N{MIDLINE HORIZONTAL ELLIPSIS}"
"""Stands for lines of the source that are not known."""


def listing_table(lines: Sequence[ListedLine], source_name: str, anchor: str = "") -> str:
    """Write the annotated source; columns without any figure are left out.

    Args:
        lines: The lines in order; where numbers are missing, a mark stands for them.
        source_name: The heading of the source.
        anchor: Each line gets the id `ANCHOR-LNUMBER`; without one, none.
    """
    rows: list[tuple[str, int, str, list[tuple[str, str]]]] = []
    before = 0
    for line in lines:
        if line.number > before + 1:
            rows.append(("gap", 0, GAP, [("", "")] * len(HTML_COLUMNS)))
        before = line.number or before
        level = heat_level(line.heat)
        look = f"h{level}" if level else "" if line.counters else "cold"
        rows.append((look, line.number, line.text, _figure_cells(line)))
        indent = line.text[: len(line.text) - len(line.text.lstrip())] + "    "
        rows += [
            ("access", 0, indent + access.text, _figure_cells(access))
            for access in line.mixed_accesses
        ]
    used = [column for column in range(len(HTML_COLUMNS)) if any(row[3][column][0] for row in rows)]
    head = "".join(
        f'<th scope="col" title="{escape(explanation)}">{escape(name)}</th>'
        for name, explanation in (HTML_COLUMNS[column] for column in used)
    )
    body = "\n".join(
        _row(
            look,
            number,
            text,
            [(HTML_COLUMNS[column][0], *figures[column]) for column in used],
            f"{anchor}-L{number}" if anchor and number else "",
        )
        for look, number, text, figures in rows
    )
    legend = "".join(
        f'<span><i class="h{level}"></i>{name}: from {share} of the traffic</span>'
        for level, (name, share) in enumerate(_HEATS, 1)
    )
    return (
        '<div class="listing"><table><thead><tr><td></td>'
        f'<th scope="col">{escape(source_name)}</th>{head}</tr></thead>'
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
        (compact_count(counted.iop), ""),
    ]


def _row(
    look: str, number: int, text: str, figures: Iterable[tuple[str, str, str]], anchor: str
) -> str:
    """Write a row; a figure is its column's name, its text and its class."""
    cells = "".join(
        f'<td class="{look_}" data-name="{escape(name)}">{figure}</td>' if figure else "<td></td>"
        for name, figure, look_ in figures
    )
    place = f' id="{anchor}"' if anchor else ""
    return (
        f'<tr class="{look}"{place}><td class="number">{number or ""}</td>'
        f'<td class="code">{escape(text)}</td>{cells}</tr>'
    )
