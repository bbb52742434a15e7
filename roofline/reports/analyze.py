"""An analysis in a terminal: the access ratio, bytes by level, and the annotated source."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.table import Column
from rich.text import Text

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.reports.analysis_text import (
    NO_BOUNDARY,
    boundary_rows,
    boundary_text,
    compact_count,
    heat_level,
    lines_without_head_comment,
    machine_rows,
    ratio_facts,
    stalls_heading,
    wastes_bus,
    wastes_lanes,
    wastes_passes,
)
from memlab.roofline.reports.parts import (
    REPORT_COLUMNS,
    TAB,
    EscapingConsole,
    bare_table,
    device_text,
    facts_section,
    figures_section,
    heading,
    indented,
    kernel_text,
    percent,
    prose_section,
    stack_sections,
)
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.units import column_number, covered_text, si_text

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from memlab.roofline.analysis.analysis import Analysis
    from memlab.roofline.analysis.listing import ListedLine, ListingItem

MAX_LISTING_COLUMNS = 130
MIN_SOURCE_COLUMNS = 24

HEAT_STYLES = ("", "yellow", "bold yellow", "bold dark_orange", "bold red")
"""Styles from cold to hot; without colours the column of traffic shares says the same."""


def listing_console() -> Console:
    """Make the console for listings on stdout, which may be wider than a report."""
    return EscapingConsole(highlight=False, width=listing_columns())


def listing_columns() -> int:
    """Return the width of listings on this terminal."""
    return min(max(Console().width, 40), MAX_LISTING_COLUMNS)


def analysis_report(analysis: Analysis) -> RenderableType:
    """Lay out the report of an analysis."""
    sections = (
        _heading(analysis),
        _at_report_width(
            facts_section("Compute-to-global-memory-access ratio", ratio_facts(analysis))
        ),
        _intensity(analysis),
        _boundary(analysis) if analysis.has_known_sizes else None,
        Listing(lines_without_head_comment(analysis.listing)),
        _machine_code(analysis),
    )
    return stack_sections(sections)


@dataclass(frozen=True)
class Listing:
    """The annotated source; columns without any figure are left out.

    Integer operations have a column where there are no FLOPs: beside FLOPs they are mostly
    addresses, and the source needs the room.

    Attributes:
        lines: The source lines.
    """

    lines: tuple[ListedLine, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the listing out for the console's width.

        On a narrow console source lines wrap, and then the last columns are left out.
        """
        items = [item for line in self.lines for item in (line, *line.mixed_accesses)]
        columns = [column for column in LISTING_COLUMNS if any(map(column.figure, items))]
        if any(item.counters and item.counters.flop for item in items):
            columns = [column for column in columns if column is not INTEGER_COLUMN]
        number_width = len(str(max((line.number for line in self.lines), default=0)))
        widths = [
            max(map(len, (*column.heading.split("\n"), *map(column.figure, items))))
            for column in columns
        ]
        taken = number_width + 2 + sum(width + 1 for width in widths)
        while columns and taken + MIN_SOURCE_COLUMNS > options.max_width:
            columns.pop()
            taken -= widths.pop() + 1
        room = max(options.max_width - taken, MIN_SOURCE_COLUMNS)
        table = bare_table(
            Column("", justify="right", width=number_width),
            Column(Text("Source", style="bold"), width=room, no_wrap=True),
            *(
                Column(
                    Text(column.heading, style="dim"), justify="right", width=width, no_wrap=True
                )
                for column, width in zip(columns, widths, strict=True)
            ),
        )
        for line in self.lines:
            heat = HEAT_STYLES[heat_level(line.heat)]
            table.add_row(
                Text(str(line.number or "-"), style="dim"),
                Text(_wrapped(line.text, room), style=heat or ("" if line.counters else "dim")),
                *(
                    Text(column.figure(line), style=column.style(line) or heat)
                    for column in columns
                ),
            )
            for access in line.mixed_accesses:
                table.add_row(
                    "",
                    Text(_wrapped(_indent(line.text) + access.text, room), style="dim italic"),
                    *(
                        Text(column.figure(access), style=column.style(access) or "dim")
                        for column in columns
                    ),
                )
        yield table


def _wrapped(text: str, width: int) -> str:
    """Wrap a source line that is too long, with a hanging indent."""
    text = text.expandtabs(TAB)
    if len(text) <= width:
        return text
    indent = len(text) - len(text.lstrip())
    hanging = " " * min(indent + TAB, width // 2)
    return "\n".join(
        textwrap.wrap(
            text, width, subsequent_indent=hanging, drop_whitespace=True, break_on_hyphens=False
        )
    )


def _indent(text: str) -> str:
    """Return the indent of the accesses under a line."""
    text = text.expandtabs(TAB)
    return " " * (len(text) - len(text.lstrip()) + TAB)


def _heat(line: ListingItem) -> str:
    return percent(round(line.heat, 3)) if line.heat >= 0.0005 else ""


def _counter_text(counter: str) -> Callable[[ListingItem], str]:
    return lambda line: compact_count(getattr(line.counters, counter)) if line.counters else ""


def _sectors(line: ListingItem) -> str:
    sectors = line.sectors_per_request
    return "" if sectors is None else f"{sectors:.3g}"


def _bus_text(line: ListingItem) -> str:
    return "" if line.bus_utilisation is None else percent(line.bus_utilisation)


def _passes(line: ListingItem) -> str:
    passes = line.passes_per_request
    return "" if passes is None else f"{passes:.3g}"


def _lanes_off_text(line: ListingItem) -> str:
    share = line.lanes_off_share
    return "" if not share or share < 0.0005 else percent(round(share, 3))


def _red_if(wastes: Callable[[ListingItem], bool]) -> Callable[[ListingItem], str]:
    return lambda line: "red" if wastes(line) else ""


@dataclass(frozen=True)
class ListingColumn:
    """A column of figures next to the source.

    Attributes:
        heading: The name, on up to two lines.
        figure: Returns the figure of a line as text; empty for none.
        style: Returns the style of the figure; empty for that of the line's heat.
    """

    heading: str
    figure: Callable[[ListingItem], str]
    style: Callable[[ListingItem], str] = lambda line: ""


INTEGER_COLUMN = ListingColumn("integer\nOP", _counter_text("iop"))
LISTING_COLUMNS = (
    ListingColumn("traffic\nshare", _heat),
    ListingColumn("re-\nquests", _counter_text("global_requests")),
    ListingColumn("sect.\n/req.", _sectors),
    ListingColumn("bus\nutil.", _bus_text, _red_if(wastes_bus)),
    ListingColumn(
        "excess\nwavef.", _counter_text("shared_excessive_wavefronts"), lambda line: "red"
    ),
    ListingColumn("local\nsect.", _counter_text("local_sectors")),
    ListingColumn("passes\n/req.", _passes, _red_if(wastes_passes)),
    ListingColumn("\nFLOP", _counter_text("flop")),
    ListingColumn("lanes\noff", _lanes_off_text, _red_if(wastes_lanes)),
    INTEGER_COLUMN,
)


def _heading(analysis: Analysis) -> RenderableType:
    coverage = analysis.coverage
    blocks = f"{covered_text(coverage)} emulated"
    remarks = [("", Text(coverage.remark, style="yellow"))] if coverage.remark else []
    return _at_report_width(
        heading(
            (kernel_text(analysis.kernel, analysis.parameters), device_text(analysis.device)),
            ("counted, not timed", blocks),
            *remarks,
        )
    )


def _intensity(analysis: Analysis) -> RenderableType:
    intensity, moved = analysis.intensity_flop_per_byte, analysis.bytes_moved
    rows = []
    for level in TRAFFIC_LEVELS:
        value = intensity[level]
        shown = "-" if value is None else column_number(value)
        rows.append((ceiling_label(level), shown, si_text(moved[level], "B")))
    return figures_section("Intensity", ("FLOP/B", "bytes"), rows)


def _boundary(analysis: Analysis) -> RenderableType:
    cost = analysis.boundary
    if cost is None:
        return prose_section("Boundary checks", NO_BOUNDARY)
    headings, rows = boundary_rows(cost)
    conclusion = _at_report_width(indented(Text(boundary_text(cost))))
    return Group(figures_section("Boundary checks", headings, rows), conclusion)


def _machine_code(analysis: Analysis) -> RenderableType | None:
    """The machine code of each line: where the warps wait, and its instructions by pipe."""
    rows = machine_rows(analysis)
    if not rows:
        return None
    stalled = bool(analysis.stalls)
    table = bare_table(
        Column(Text("  Line", style="dim"), justify="right", no_wrap=True),
        *(
            (
                Column(Text("warp time", style="dim"), justify="right", no_wrap=True),
                Column(Text("of that", style="dim"), ratio=4),
            )
            if stalled
            else ()
        ),
        Column(Text("warp instructions", style="dim"), ratio=3),
        gap=2,
    )
    for number, share, stalls, instructions in rows:
        table.add_row(number, *((share, stalls) if stalled else ()), instructions)
    title = Text("Machine code by line", style="bold")
    parts = [title, indented(Text(stalls_heading(analysis.stalls)))] if stalled else [title]
    return _at_report_width(Group(*parts, table))


def _at_report_width(part: RenderableType) -> RenderableType:
    """Limit a part to the width of a report, however wide the listing is."""
    return Constrain(part, REPORT_COLUMNS)
