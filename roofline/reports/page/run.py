"""A run in the report page: its figures, its advice, its source and its machine code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.properties import SECTOR_BYTES, architecture_name
from memlab.roofline.analysis.listing import listing
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.reports.analysis_text import compact_count, wastes_bus, wastes_passes
from memlab.roofline.reports.page.chart import roof_text
from memlab.roofline.reports.page.listing import listing_table
from memlab.roofline.reports.page.machine_code import machine_code_table
from memlab.roofline.reports.page.markup import escape, table, text_html
from memlab.roofline.reports.parts import FactsSection, FiguresSection, ProseSection, percent
from memlab.roofline.reports.run import rate_text, run_sections, time_label
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlab.device.machine_code.listing import MachineListing
    from memlab.roofline.analysis.listing import ListedLine
    from memlab.roofline.reports.page.chart import ChartRun
    from memlab.roofline.reports.parts import Section
    from memlab.roofline.run import Run

_LINE_REFERENCE = re.compile(r"\bline (\d{1,9})\b")
"""How a sentence of the advice names a line of the source."""


@dataclass(frozen=True)
class SourceText:
    """The source of a run.

    Attributes:
        name: Its file name.
        lines: Its lines with their counters; those that are not known are left out.
    """

    name: str
    lines: tuple[ListedLine, ...]


def known_lines(run: Run) -> tuple[ListedLine, ...]:
    """List the lines of the source that a run holds itself: those with instructions."""
    counted = {line.line: line for line in run.measurement.lines}
    last = max(counted, default=0)
    text = "\n".join(
        counted[number].text if number in counted else "" for number in range(1, last + 1)
    )
    return tuple(line for line in listing(text, counted.values()) if line.counters is not None)


def run_section(
    named: ChartRun,
    source: SourceText | None,
    machine_code: MachineListing | None,
    *,
    is_open: bool,
) -> str:
    """Write the section of a run, which can be folded.

    Args:
        named: The run.
        source: Its source; None where no line is known.
        machine_code: Its machine code; None where it is not known.
        is_open: Whether it is unfolded at first.
    """
    run, anchor = named.run, named.anchor
    numbers = {line.number for line in source.lines} if source else set[int]()
    sections = [each for each in run_sections(run) if not isinstance(each, ProseSection)]
    parts = [
        _facts_line(run),
        _advice(run, source.lines if source else (), anchor),
        f'<div class="panels">{"".join(map(_panel, _ordered(sections)))}{_busy(run)}</div>',
    ]
    if source is not None and source.lines:
        parts.append(f"<h4>Source</h4>{listing_table(source.lines, source.name, anchor)}")
    if machine_code is not None:
        parts.append(machine_code_table(machine_code, anchor, numbers))
    return (
        f'<details class="run" id="{anchor}"{" open" if is_open else ""}><summary>'
        f'<span class="key" data-key="{named.key}"></span>'
        f"<h3>{escape(run.measurement.kernel)}</h3>"
        f"<span>{escape(parameters_text(run.measurement.parameters))}</span>"
        f"<span>{escape(time_label(run.measurement.time))}</span>"
        f"<span>{escape(rate_text(run))}</span><span>{escape(roof_text(run))}</span>"
        f"</summary>{''.join(parts)}</details>"
    )


def _facts_line(run: Run) -> str:
    device = run.measurement.device
    facts = (
        f"{device.name}, {architecture_name(device.compute_capability)}",
        "emulated on a CPU" if device.kind == "emulated" else device.key,
        "not stored" if run.id is None else f"run {run.id}",
        run.created_at[:16].replace("T", " ") + " UTC",
        f"memlab {run.memlab_version}",
    )
    return f'<p class="quiet">{escape(" · ".join(facts))}</p>'


def _advice(run: Run, lines: Sequence[ListedLine], anchor: str) -> str:
    """Write the advice; the lines that it names, and those that cost most, are links to them."""
    numbers = {line.number for line in lines}

    def link(match: re.Match[str]) -> str:
        if int(match[1]) not in numbers:
            return match[0]
        return f'<a href="#{anchor}-L{match[1]}">{match[0]}</a>'

    def linked(sentence: str) -> str:
        return f"<li>{_LINE_REFERENCE.sub(link, escape(sentence))}</li>"

    parts = [
        f"<h4>{title}</h4><ul>{''.join(map(linked, sentences))}</ul>"
        for title, sentences in (
            ("Advice", run.advice),
            ("Lines that cost most", costly_lines(lines)),
        )
        if sentences
    ]
    return f'<div class="advice">{"".join(parts)}</div>' if parts else ""


def costly_lines(lines: Sequence[ListedLine]) -> list[str]:
    """Name the lines with most traffic and with most waste of each kind, in words."""
    found: dict[int, list[str]] = {}
    for cost, text in _COSTS:
        numbered = (line for line in lines if line.counters and line.number)
        line = max(numbered, key=cost, default=None)
        if line is not None and cost(line) > 0:
            found.setdefault(line.number, []).append(text(line))
    return [f"line {number}: {'; '.join(texts)}" for number, texts in found.items()]


def _unused_bytes(line: ListedLine) -> float:
    moved = SECTOR_BYTES * _count(line, "global_sectors")
    used = line.bus_utilisation
    return moved * (1.0 - used) if used is not None and wastes_bus(line) else 0.0


def _conflicts(line: ListedLine) -> int:
    return _count(line, "shared_excessive_wavefronts")


def _local_sectors(line: ListedLine) -> int:
    return _count(line, "local_sectors")


def _constant_addresses(line: ListedLine) -> float:
    return line.passes_per_request or 0.0 if wastes_passes(line) else 0.0


def _count(line: ListedLine, name: str) -> int:
    return int(getattr(line.counters, name))


_COSTS: tuple[tuple[Callable[[ListedLine], float], Callable[[ListedLine], str]], ...] = (
    (lambda line: line.heat, lambda line: f"{percent(line.heat)} of the traffic through the L1"),
    (_unused_bytes, lambda line: f"{percent(line.bus_utilisation or 0)} of its bytes are used"),
    (_conflicts, lambda line: f"{compact_count(_conflicts(line))} wavefronts by bank conflicts"),
    (_local_sectors, lambda line: f"{compact_count(_local_sectors(line))} local sectors"),
    (
        _constant_addresses,
        lambda line: f"{_constant_addresses(line):.3g} addresses per constant load",
    ),
)
"""What makes a line costly, and how the costliest one is described."""


def _ordered(sections: Iterable[Section]) -> list[Section]:
    """The result first: it is what a reader looks for."""
    return sorted(sections, key=lambda section: section.title != "Result")


def _panel(section: Section) -> str:
    title = f"<h4>{escape(section.title)}</h4>"
    if isinstance(section, FactsSection):
        rows = "".join(
            f"<dt>{escape(label)}</dt><dd>{text_html(value)}</dd>" for label, value in section.rows
        )
        return f"<section>{title}<dl>{rows}</dl></section>"
    if isinstance(section, FiguresSection):
        # Columns that a terminal keeps for its alignment alone have neither heading nor figure.
        used = [
            place
            for place, heading in enumerate(section.headings, 1)
            if heading or any(row[place] for row in section.rows)
        ]
        headings = ("", *(section.headings[place - 1] for place in used))
        rows_ = [(row[0], *(row[place] for place in used)) for row in section.rows]
        return f"<section>{title}{table(headings, rows_)}</section>"
    return f"<section>{title}<p>{escape(section.text)}</p></section>"


def _busy(run: Run) -> str:
    """Write the share of the time for which each resource is busy, as bars."""
    busy = {key: share for key, share in run.placement.busy.items() if share > 0}
    if not busy:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(ceiling_label(key))}</th>'
        f'<td><span class="bar"><i style="width: {100 * min(share, 1):.1f}%"></i></span></td>'
        f"<td>{percent(share)}</td></tr>"
        for key, share in sorted(busy.items(), key=lambda item: -item[1])
    )
    return (
        '<section class="busy"><h4>Busy, share of the time</h4>'
        f"<table><tbody>{rows}</tbody></table></section>"
    )
