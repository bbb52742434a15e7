"""The parts of reports in a terminal: console, headings, sections, figures."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from memlab.device.properties import architecture_name
from memlab.roofline.units import parameters_text
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from memlab.device.measurement import DeviceSummary
    from memlab.device.properties import DeviceProperties

REPORT_COLUMNS = 80
PIPE_COLUMNS = 10_000
"""Width of a table in a pipe: more than its rows have."""
LABEL_COLUMNS = 17
FIGURE_COLUMNS = 17
BAR_COLUMNS = 20
TAB = 4

HTML_FORMAT = (
    '<pre style="white-space: pre; overflow-x: auto; line-height: 1.3; '
    "font-family: Menlo, Consolas, 'DejaVu Sans Mono', monospace\">{code}</pre>"
)
"""Fragment of HTML around a report."""

BINARY_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")


class EscapingConsole(Console):
    """A console that shows control characters as escapes.

    File names, kernel names, source lines and stored runs may be another person's, and must not
    move the cursor or change colours.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Lay out a part, with control characters written as escapes."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, but="\n\t"), style, control)


def console(most: int = REPORT_COLUMNS) -> Console:
    """Make the console for reports on stdout; terminal and `NO_COLOR` decide on colours.

    Args:
        most: Columns that are used of a wide terminal.
    """
    return EscapingConsole(highlight=False, width=report_columns(most))


def report_columns(most: int = REPORT_COLUMNS) -> int:
    """Return the width of reports on this terminal, at most `most` columns."""
    return min(Console().width or REPORT_COLUMNS, most)  # 0 where the terminal does not know


def table_console() -> Console:
    """Make the console for tables on stdout, whose rows may be longer than a report's lines."""
    return EscapingConsole(highlight=False, width=table_columns())


def table_columns() -> int:
    """Return the width of tables: the terminal's; in a pipe or a file without end.

    `COLUMNS` in the environment is a width in any case.
    """
    screen = Console()
    return (
        screen.width or REPORT_COLUMNS
        if screen.is_terminal or "COLUMNS" in os.environ
        else PIPE_COLUMNS
    )


def rendered_text(report: RenderableType, columns: int) -> str:
    """Write a report as text without colours.

    Args:
        report: The report.
        columns: Its width.
    """
    console = _recorder(columns)
    console.print(report)
    return console.export_text()


def rendered_html(report: RenderableType, columns: int) -> str:
    """Write a report as a fragment of HTML with its own styles, for a notebook.

    Args:
        report: The report.
        columns: Its width, in characters of a fixed-width font.
    """
    console = _recorder(columns)
    console.print(report)
    return console.export_html(inline_styles=True, code_format=HTML_FORMAT)


def _recorder(columns: int) -> Console:
    """Make a console that shows nothing: by itself Rich prints into the cell of a notebook."""
    return EscapingConsole(
        file=io.StringIO(),
        width=columns,
        record=True,
        highlight=False,
        force_terminal=True,
        force_jupyter=False,
    )


def stack_sections(sections: Iterable[RenderableType | None]) -> Group:
    """Stack sections with a blank line between them; None stands for a missing section."""
    parts = [part for section in sections if section is not None for part in ("", section)]
    return Group(*parts[1:])


def heading(*rows: tuple[Text | str, Text | str]) -> Table:
    """Lay out the head of a report: the left and the right text of each row, plain words dim."""
    grid = Table.grid(Column(), Column(justify="right"), expand=True, padding=(0, 1))
    for row in rows:
        grid.add_row(*(text if isinstance(text, Text) else Text(text, style="dim") for text in row))
    return grid


def kernel_text(kernel: str, parameters: Mapping[str, int | str]) -> Text:
    """Format a kernel and its parameters for a heading."""
    return Text.assemble((kernel, "bold cyan"), "  ", parameters_text(parameters))


def device_text(device: DeviceSummary | DeviceProperties) -> Text:
    """Format a device and its architecture for a heading: `NVIDIA H200, sm_90`."""
    architecture = architecture_name(device.compute_capability)
    return Text.assemble((device.name, "bold"), f", {architecture}")


@dataclass(frozen=True)
class FactsSection:
    """A section of facts, one per line.

    Attributes:
        title: Its title.
        rows: Label and value of each fact; a value that belongs to the one above has no label.
    """

    title: str
    rows: tuple[tuple[str, RenderableType], ...]

    def __rich__(self) -> RenderableType:
        """Lay it out for a terminal."""
        grid = Table.grid(Column(width=LABEL_COLUMNS), Column(), padding=(0, 1, 0, 0))
        for label, value in self.rows:
            grid.add_row(Text(f"  {label}", style="dim"), value)
        return Group(Text(self.title, style="bold"), grid)


@dataclass(frozen=True)
class FiguresSection:
    """A section of figures: a label and right-aligned figures in each row.

    Attributes:
        title: Its title.
        headings: Those of the figures.
        rows: A label and its figures.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay it out for a terminal; every section has the same columns."""
        # Labels stay whole on a narrow terminal; each column has a blank before it.
        most = (options.max_width - LABEL_COLUMNS) // max(len(self.headings), 1) - 1
        width = max(1, min(FIGURE_COLUMNS, most))
        wide = cell_len(self.title) > LABEL_COLUMNS
        if wide:  # it has a line of its own
            yield Text(self.title, style="bold")
        table = bare_table(
            Column(Text("" if wide else self.title, style="bold"), width=LABEL_COLUMNS),
            *(
                Column(Text(heading, style="dim"), justify="right", width=width)
                for heading in self.headings
            ),
        )
        for label, *values in self.rows:
            table.add_row(Text(f"  {label}", style="dim"), *values)
        yield table


@dataclass(frozen=True)
class ProseSection:
    """A section of one paragraph.

    Attributes:
        title: Its title.
        text: The paragraph.
    """

    title: str
    text: str

    def __rich__(self) -> RenderableType:
        """Lay it out for a terminal."""
        return Group(Text(self.title, style="bold"), indented(Text(self.text)))


Section: TypeAlias = FactsSection | FiguresSection | ProseSection
"""A part of a report as data, which a terminal and a page lay out each in its way."""


def facts_section(title: str, rows: Iterable[tuple[str, RenderableType]]) -> FactsSection:
    """Make a section of facts: a title, then one fact per line as label and value."""
    return FactsSection(title, tuple(rows))


def figures_section(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]
) -> FiguresSection:
    """Make a section of right-aligned figures."""
    return FiguresSection(title, tuple(headings), tuple(map(tuple, rows)))


def bare_table(*columns: Column, gap: int = 1) -> Table:
    """Make a table without rules.

    Args:
        columns: The columns.
        gap: Blanks between two columns.
    """
    return Table(*columns, box=None, padding=(0, gap, 0, 0), pad_edge=False)


def prose_section(title: str, text: str) -> ProseSection:
    """Make a section of one paragraph."""
    return ProseSection(title, text)


def indented(part: RenderableType) -> RenderableType:
    """Indent a part of a section under its title."""
    return Padding(part, (0, 0, 0, 2))


def bar(fraction: float) -> Text:
    """Draw a share, 0 to 1, as a bar."""
    filled = round(BAR_COLUMNS * fraction)
    return Text.assemble(("━" * filled, "cyan"), ("─" * (BAR_COLUMNS - filled), "dim"))


def capacity(size: int) -> str:
    """Format a capacity with a binary prefix: `227 KiB`, `139.8 GiB`."""
    value, step = float(size), 0
    while value >= 1024 and step < len(BINARY_PREFIXES) - 1:
        value, step = value / 1024, step + 1
    return f"{value:.1f}".removesuffix(".0") + f" {BINARY_PREFIXES[step]}"


def percent(fraction: float) -> str:
    """Format a share, 0 to 1, as `51.9%`; a small one as `<0.1%`, not as zero."""
    if 0 < fraction < 0.001:
        return "<0.1%"
    return f"{100 * fraction:.1f}%".replace(".0%", "%")
