"""An analysis as a person reads it in a terminal: the ratio, the levels, the source by heat."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from memlab.cli.render import LABEL_COLUMNS, REPORT_COLUMNS, Screen, bound_label, percent
from memlab.roofline.analysis_text import (
    boundary_rows,
    boundary_text,
    compact,
    heat_level,
    ratio_facts,
    shown_lines,
    wastes_bus,
    wastes_lanes,
)
from memlab.roofline.run import LEVELS
from memlab.roofline.units import digits, parameters_text, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from memlab.roofline.analysis import Analysis
    from memlab.roofline.listing import ListedLine

WIDEST_LISTING = 130
LEAST_SOURCE_COLUMNS = 24
TAB = 4

HEAT_STYLES = ("", "yellow", "bold yellow", "bold dark_orange", "bold red")
"""From cold to hot; where there is no colour, the column of shares says the same."""


def listing_console() -> Console:
    """Give the console for listings on stdout: wider than a report where the terminal is."""
    return Screen(highlight=False, width=min(max(Console().width, 40), WIDEST_LISTING))


def report(analysis: Analysis) -> RenderableType:
    """Give the whole report of an analysis."""
    sections: list[RenderableType] = [
        _heading(analysis),
        _ratio(analysis),
        _intensity(analysis),
        *([_boundary(analysis)] if analysis.knows_sizes else []),
        Listing(shown_lines(analysis.listing)),
    ]
    return Group(sections[0], *(part for section in sections[1:] for part in ("", section)))


@dataclass(frozen=True)
class Listing:
    """The annotated source: columns that have nothing to say are left out.

    Attributes:
        lines: What to list.
    """

    lines: tuple[ListedLine, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the listing out for the console's width.

        Where it is narrow source lines wrap, and then the last columns go.
        """
        columns = [each for each in COLUMNS if any(map(each.figure, self.lines))]
        number_width = len(str(max((line.number for line in self.lines), default=0)))
        widths = [
            max(map(len, (*each.heading.split("\n"), *map(each.figure, self.lines))))
            for each in columns
        ]
        taken = number_width + 2 + sum(width + 1 for width in widths)
        while columns and taken + LEAST_SOURCE_COLUMNS > options.max_width:
            columns.pop()
            taken -= widths.pop() + 1
        room = max(options.max_width - taken, LEAST_SOURCE_COLUMNS)
        table = Table(
            Column("", justify="right", width=number_width),
            Column(Text("Source", style="bold"), width=room, no_wrap=True),
            *(
                Column(Text(each.heading, style="dim"), justify="right", width=width, no_wrap=True)
                for each, width in zip(columns, widths, strict=True)
            ),
            box=None,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        for line in self.lines:
            heat = HEAT_STYLES[heat_level(line.heat)]
            table.add_row(
                Text(str(line.number or "-"), style="dim"),
                Text(_wrapped(line.text, room), style=heat or ("" if line.counters else "dim")),
                *(Text(each.figure(line), style=each.style(line) or heat) for each in columns),
            )
        yield table


def _wrapped(text: str, width: int) -> str:
    """Break a source line that is too long, its rest indented further."""
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


def _heat(line: ListedLine) -> str:
    return percent(round(line.heat, 3)) if line.heat >= 0.0005 else ""


def _requests(line: ListedLine) -> str:
    return compact(line.counters.global_requests) if line.counters else ""


def _sectors(line: ListedLine) -> str:
    each = line.sectors_per_request
    return "" if each is None else f"{each:.3g}"


def _bus(line: ListedLine) -> str:
    return "" if line.bus_utilisation is None else percent(line.bus_utilisation)


def _bus_style(line: ListedLine) -> str:
    return "red" if wastes_bus(line) else ""


def _excessive(line: ListedLine) -> str:
    return compact(line.counters.shared_excessive_wavefronts) if line.counters else ""


def _flop(line: ListedLine) -> str:
    return compact(line.counters.flop) if line.counters else ""


def _off(line: ListedLine) -> str:
    share = line.lanes_off_share
    return "" if not share or share < 0.0005 else percent(round(share, 3))


def _off_style(line: ListedLine) -> str:
    return "red" if wastes_lanes(line) else ""


@dataclass(frozen=True)
class Figure:
    """One column behind the source.

    Attributes:
        heading: Its name, on up to two lines.
        figure: What it says of a line.
        style: How, where that is not the heat's.
    """

    heading: str
    figure: Callable[[ListedLine], str]
    style: Callable[[ListedLine], str] = lambda line: ""


COLUMNS = (
    Figure("traffic\nshare", _heat),
    Figure("re-\nquests", _requests),
    Figure("sect.\n/req.", _sectors),
    Figure("bus\nutil.", _bus, _bus_style),
    Figure("excess\nwavef.", _excessive, lambda line: "red"),
    Figure("\nFLOP", _flop),
    Figure("lanes\noff", _off, _off_style),
)


def _heading(analysis: Analysis) -> RenderableType:
    device = analysis.device
    grid = Table.grid(Column(), Column(justify="right"), expand=True, padding=(0, 1))
    grid.add_row(
        Text.assemble((analysis.kernel, "bold cyan"), "  ", parameters_text(analysis.parameters)),
        Text.assemble((device.name, "bold"), ", sm_{}{}".format(*device.compute_capability)),
    )
    coverage = analysis.coverage
    grid.add_row(
        Text("counted, not timed", style="dim"),
        Text(
            f"{coverage.blocks_emulated:,} of {coverage.blocks_total:,} blocks emulated",
            style="dim",
        ),
    )
    if coverage.remark:
        grid.add_row("", Text(coverage.remark, style="yellow"))
    return _narrow(grid)


def _ratio(analysis: Analysis) -> RenderableType:
    title = Text("Compute-to-global-memory-access ratio", style="bold")
    grid = Table.grid(Column(width=LABEL_COLUMNS), Column(), padding=(0, 1, 0, 0))
    for label, value in ratio_facts(analysis):
        grid.add_row(Text(f"  {label}", style="dim"), value)
    return Group(title, _narrow(grid))


def _intensity(analysis: Analysis) -> RenderableType:
    table = _figures("Intensity", ("FLOP/B", "bytes"))
    intensity, moved = analysis.intensity_flop_per_byte, analysis.bytes_moved
    for level in LEVELS:
        value = intensity[level]
        table.add_row(
            Text(f"  {bound_label(level)}", style="dim"),
            "-" if value is None else digits(value),
            scaled(moved[level], "B"),
        )
    return table


def _boundary(analysis: Analysis) -> RenderableType:
    cost = analysis.boundary
    if cost is None:
        return Group(
            Text("Boundary checks", style="bold"),
            Text("  No block reaches over the edge: the sizes are multiples of the block's."),
        )
    headings, rows = boundary_rows(cost)
    table = _figures("Boundary checks", headings)
    for label, *values in rows:
        table.add_row(Text(f"  {label}", style="dim"), *values)
    return Group(table, _narrow(Padding(Text(boundary_text(cost)), (0, 0, 0, 2))))


def _figures(title: str, headings: Sequence[str]) -> Table:
    return Table(
        Column(Text(title, style="bold"), width=LABEL_COLUMNS),
        *(Column(Text(each, style="dim"), justify="right", width=17) for each in headings),
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def _narrow(part: RenderableType) -> RenderableType:
    """Keep text at a report's width, however wide the listing may be."""
    from rich.constrain import Constrain

    return Constrain(part, REPORT_COLUMNS)
