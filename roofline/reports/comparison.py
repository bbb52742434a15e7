"""The report of a comparison in a terminal, 80 columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from memlab.roofline.comparison.lines import LINE_COUNTERS
from memlab.roofline.comparison.wording import (
    change_text,
    figure_texts,
    run_origin,
    run_title,
    value_text,
)
from memlab.roofline.reports.parts import (
    bare_table,
    facts_section,
    indented,
    prose_section,
    stack_sections,
)
from memlab.roofline.units import elide_middle, si_text
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from memlab.roofline.comparison.records import (
        Comparison,
        ConditionResult,
        FigureChange,
        LineChange,
        PairComparison,
    )

FIGURE_TITLES = {"counters": "Counters", "bytes": "Bytes", "intensity": "Intensity, FLOP/B"}
"""The sections that are tables, and their titles."""

LINE_COUNTERS_SHOWN = (
    "global_requests",
    "global_sectors",
    "shared_instructions",
    "shared_wavefronts",
    "shared_excessive_wavefronts",
    "local_sectors",
    "constant_passes",
    "flop",
)
"""The counters of lines in a report without `everything`."""

MAX_LINES = 12
"""The most source lines that a report without `everything` shows."""

MAX_SOURCE_CHARACTERS = 200
"""The longest source line that is shown whole."""

MAX_PAIRS_IN_FULL = 1
"""With more pairs a report without `everything` has a row for each."""

JUDGEMENT_STYLES = {"better": "green", "worse": "bold red", "within error": "dim"}
SHORT_JUDGEMENTS = {"within error": "uncertain", "changed": "", "same": ""}
CALL_STYLES = {
    "faster": "bold green",
    "slower": "bold red",
    "wrong output": "bold red",
    "not comparable": "yellow",
    "counters differ": "yellow",
    "undecided": "yellow",
}
LABEL_WIDTH, VALUE_WIDTH, CHANGE_WIDTH = 31, 15, 16
MAX_COUNT_CHARACTERS = 15
"""A longer count is written with a prefix."""


def comparison_report(comparison: Comparison, *, everything: bool = False) -> RenderableType:
    """Lay out the report of a comparison.

    Args:
        comparison: The comparison.
        everything: Whether to show what did not change too, all lines, and every pair in full.
    """
    parts: list[RenderableType | None] = []
    if len(comparison.pairs) > MAX_PAIRS_IN_FULL:
        parts.append(_pairs_table(comparison))
        if not everything:
            parts.append(_pairs_notes(comparison))
    if len(comparison.pairs) <= MAX_PAIRS_IN_FULL or everything:
        for pair in comparison.pairs:
            parts.extend(_pair_sections(pair, everything))
    for side, runs in (("A", comparison.only_a), ("B", comparison.only_b)):
        if runs:
            rows = [(f"in {side} alone", Text(run_title(run))) for run in runs]
            parts.append(facts_section("Without a partner", rows))
    if comparison.conditions:
        parts.append(_gate_section(comparison.conditions))
    return stack_sections(parts)


def _pair_sections(pair: PairComparison, everything: bool) -> Iterator[RenderableType | None]:
    yield _heading(pair)
    yield facts_section("Verdict", _verdict_facts(pair))
    for section in ("launch", "resources"):
        rows = list(_shown(pair.figures, section, everything))
        if rows:
            yield facts_section(section.capitalize(), map(_fact, rows))
    for section, title in FIGURE_TITLES.items():
        yield _figures_table(title, list(_shown(pair.figures, section, everything)))
    rows = list(_shown(pair.figures, "result", everything))
    if rows:
        yield facts_section("Result", map(_fact, rows))
    yield _lines_section(pair, everything)
    if pair.advice_gone:
        yield prose_section("Advice no longer needed", " ".join(pair.advice_gone))
    if pair.advice_new:
        yield prose_section("New advice", " ".join(pair.advice_new))


def _heading(pair: PairComparison) -> Table:
    grid = Table.grid(Column(width=2), Column(), padding=(0, 1, 0, 0))
    for side, run in (("A", pair.a), ("B", pair.b)):
        grid.add_row(
            Text(side, style="bold cyan"),
            Text.assemble((run_title(run), "bold"), (f"  {run_origin(run)}", "dim")),
        )
    return grid


def _verdict_facts(pair: PairComparison) -> Iterator[tuple[str, RenderableType]]:
    yield "verdict", Text(pair.call, style=CALL_STYLES.get(pair.call, "bold"))
    for obstacle in pair.obstacles:
        yield "not comparable", Text(obstacle, style="yellow")
    yield "code", Text(pair.code.text)
    yield "counters", Text(pair.counters)
    yield "time", Text(pair.time.text)
    correlation = max(pair.time.correlation)
    if pair.time.low is not None and correlation >= 1.5:
        yield "", Text(f"samples correlate: their variance counts {correlation:.2g} times")
    for note in pair.notes:
        yield "note", Text(note)


def _shown(
    figures: Iterable[FigureChange], section: str, everything: bool
) -> Iterator[FigureChange]:
    for change in figures:
        if change.section == section and (change.judgement != "same" or everything):
            if everything and not change.a and not change.b:
                continue
            yield change


def _fact(change: FigureChange) -> tuple[str, RenderableType]:
    a, b = figure_texts(change)
    if change.judgement == "same":
        return change.label, Text(a)
    text = Text(f"{a} -> {b}")
    if change.relative:
        text.append(f"  {_change_text(change)}", JUDGEMENT_STYLES.get(change.judgement, ""))
    return change.label, text


def _figures_table(title: str, rows: Sequence[FigureChange]) -> _FigureTable | None:
    if not rows:
        return None
    return _FigureTable(
        title,
        tuple(
            (
                Text(f"  {change.label}", style="dim"),
                Text(_cell(change, change.a)),
                Text(_cell(change, change.b)),
                Text(_change_text(change), style=JUDGEMENT_STYLES.get(change.judgement, "")),
            )
            for change in rows
        ),
    )


@dataclass(frozen=True)
class _FigureTable:
    """Figures of A and B: in the same columns in every section, or as narrow as they can be."""

    title: str
    rows: tuple[tuple[Text, Text, Text, Text], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = (self.title, "A", "B", "change")
        wide = options.max_width >= LABEL_WIDTH + 2 * VALUE_WIDTH + CHANGE_WIDTH + 3
        widths: tuple[int | None, ...] = (LABEL_WIDTH, VALUE_WIDTH, VALUE_WIDTH, CHANGE_WIDTH)
        table = bare_table(
            *(
                Column(
                    Text(name, style="dim" if place else "bold"),
                    width=width if wide else None,
                    justify="right" if place else "left",
                    no_wrap=bool(place),
                )
                for place, (name, width) in enumerate(zip(names, widths, strict=True))
            )
        )
        table.show_header = bool(self.title)
        for row in self.rows:
            table.add_row(*row)
        yield table


def _cell(change: FigureChange, value: str | int | float | None) -> str:
    text = value_text(value, change.unit)
    if len(text) > MAX_COUNT_CHARACTERS and isinstance(value, int | float):
        return si_text(value, "")
    return text


def _change_text(change: FigureChange) -> str:
    text = change_text(change.relative)
    if change.relative is None and change.judgement != "same":
        text = "from none" if not change.a else "to none"
    judgement = SHORT_JUDGEMENTS.get(change.judgement, change.judgement)
    return " ".join(filter(None, (text, judgement)))


def _lines_section(pair: PairComparison, everything: bool) -> RenderableType | None:
    names = LINE_COUNTERS if everything else LINE_COUNTERS_SHOWN
    lines = [line for line in pair.lines if any(name in line.counters for name in names)]
    if not lines:
        return None
    shown = lines if everything else lines[:MAX_LINES]
    parts: list[RenderableType] = []
    for line in shown:
        parts.append(indented(_line_title(pair, line)))
        rows = []
        for name in names:
            if name in line.counters:
                a, b = line.counters[name]
                change = change_text((b - a) / a) if a else "from none"
                label = Text(f"    {name.replace('_', ' ')}", style="dim")
                rows.append((label, Text(f"{a:,}"), Text(f"{b:,}"), Text(change)))
        parts.append(_FigureTable("", tuple(rows)))
    if len(lines) > len(shown):
        parts.append(indented(Text(f"{len(lines) - len(shown)} more lines: --all", style="dim")))
    return Group(Text("Source lines", style="bold"), *parts)


def _line_title(pair: PairComparison, line: LineChange) -> Text:
    run, counters = (pair.b, line.b) if line.b else (pair.a, line.a)
    assert counters is not None
    name = run.measurement.code.source_name or run.measurement.kernel
    moved = ""
    if line.a and line.b and line.a.line not in (0, line.b.line):  # a baseline has none
        moved = f", in A {line.a.line}"
    place = f"{elide_middle(name, 40)}:{counters.line}{moved}"
    match = "" if line.match == "same" else f" ({line.match})"
    source = elide_middle(counters.text.strip(), MAX_SOURCE_CHARACTERS)
    return Text.assemble((place, "cyan"), (f"{match}  ", "yellow"), source)


def _pairs_table(comparison: Comparison) -> RenderableType:
    """One row per pair: the point, both times, the change and the verdict."""
    right = {"justify": "right", "no_wrap": True}
    count = len(comparison.pairs)
    table = bare_table(
        Column(Text(f"{count} {plural(count, 'pair')}", style="bold"), overflow="fold"),
        Column(Text("A", style="dim"), **right),  # type: ignore[arg-type]
        Column(Text("B", style="dim"), **right),  # type: ignore[arg-type]
        Column(Text("change", style="dim"), **right),  # type: ignore[arg-type]
        Column(Text("counters", style="dim"), no_wrap=True),
        Column(Text("verdict", style="dim"), no_wrap=True),
    )
    for pair in comparison.pairs:
        sign = "" if pair.time.provenance == "measured" else "~"
        table.add_row(
            Text(elide_middle(run_title(pair.b), 60)),
            f"{sign}{si_text(pair.time.a_s, 's')}",
            f"{sign}{si_text(pair.time.b_s, 's')}",
            change_text(pair.time.relative),
            "differ" if pair.counters_differ else "same",
            Text(pair.call, style=CALL_STYLES.get(pair.call, "")),
        )
    return table


def _pairs_notes(comparison: Comparison) -> RenderableType | None:
    """What a reader must know of the pairs, each once."""
    texts = [
        (label, text)
        for label in ("not comparable", "note")
        for pair in comparison.pairs
        for text in (pair.obstacles if label == "not comparable" else pair.notes)
    ]
    rows = [(label, Text(text)) for label, text in dict.fromkeys(texts)]
    if len(rows) > MAX_LINES:
        rows = [*rows[:MAX_LINES], ("", Text(f"{len(rows) - MAX_LINES} more: --all", "dim"))]
    return facts_section("Notes", rows) if rows else None


def _gate_section(results: Sequence[ConditionResult]) -> RenderableType:
    styles = {"held": "bold red", "passed": "green", "not judged": "yellow"}
    words = {"held": "FAILED", "passed": "passed", "not judged": "not judged"}
    several = len({result.subject for result in results}) > 1
    grid = Table.grid(Column(width=12), Column(), padding=(0, 1, 0, 0))
    for result in results:
        if len(results) > 2 * MAX_LINES and not result.failed:
            continue
        subject = f" ({result.subject})" if several else ""
        grid.add_row(
            Text(f"  {words[result.status]}", style=styles[result.status]),
            Text(f"{result.condition}{subject}: {result.text}"),
        )
    failed = sum(result.failed for result in results)
    title = f"Gate: {failed} of {len(results)} {plural(len(results), 'condition')} failed"
    return Group(Text(title, style="bold"), grid)
