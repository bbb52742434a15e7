"""A comparison in the report page: verdicts, changed figures and lines, advice gone and new."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from memlab.roofline.comparison.wording import (
    change_text,
    figure_texts,
    run_origin,
    run_title,
)
from memlab.roofline.reports.page.markup import escape
from memlab.roofline.units import si_text
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memlab.roofline.comparison.records import (
        Comparison,
        FigureChange,
        LineChange,
        PairComparison,
    )
    from memlab.roofline.reports.page.chart import ChartRun

SECTION_TITLES = {"intensity": "Intensity, FLOP/B"}
"""Titles of sections of figures that are more than their name."""

_CALL_LOOKS = {
    "faster": "good",
    "slower": "bad",
    "wrong output": "bad",
    "not comparable": "warn",
    "counters differ": "warn",
    "undecided": "warn",
}
_JUDGEMENT_LOOKS = {"better": "good", "worse": "bad", "within error": "quiet"}
_GATE = {
    "held": '<span class="bad">✗ failed</span>',
    "passed": '<span class="good">✓ passed</span>',
    "not judged": '<span class="warn">not judged</span>',
}


def comparison_section(comparison: Comparison, named: Mapping[int, ChartRun]) -> str:
    """Write the section of a comparison.

    Args:
        comparison: The comparison.
        named: The runs of the page by the `id` of their records.
    """
    several = len(comparison.pairs) > 1
    pairs = "\n".join(_pair(pair, named, several) for pair in comparison.pairs)
    return f"""<section class="comparison" aria-label="Comparison">
<h2>Comparison</h2>
{_pairs_table(comparison) if several else ""}
{_gate(comparison)}
{pairs}
{_alone(comparison)}
</section>"""


def _pairs_table(comparison: Comparison) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(run_title(pair.b))}</th>'
        f"<td>{_time_text(pair, pair.time.a_s)}</td><td>{_time_text(pair, pair.time.b_s)}</td>"
        f"<td>{change_text(pair.time.relative)}</td>"
        f"<td>{'differ' if pair.counters_differ else 'same'}</td><td>{_call(pair)}</td></tr>"
        for pair in comparison.pairs
    )
    return (
        '<div class="wide" role="region" aria-label="Compared runs" tabindex="0">'
        '<table class="changes"><thead><tr><th scope="col">runs</th><th scope="col">A</th>'
        '<th scope="col">B</th><th scope="col">change</th><th scope="col">counters</th>'
        f'<th scope="col">verdict</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _time_text(pair: PairComparison, seconds: float) -> str:
    sign = "" if pair.time.provenance == "measured" else "~"
    return escape(sign + si_text(seconds, "s"))


def _call(pair: PairComparison) -> str:
    return f'<span class="{_CALL_LOOKS.get(pair.call, "")}">{escape(pair.call)}</span>'


def _gate(comparison: Comparison) -> str:
    if not comparison.conditions:
        return ""
    rows = "".join(
        f"<tr><td>{_GATE[result.status]}</td><td>{escape(result.condition)}</td>"
        f"<td>{escape(result.subject)}</td><td>{escape(result.text)}</td></tr>"
        for result in comparison.conditions
    )
    failed = sum(result.failed for result in comparison.conditions)
    count = len(comparison.conditions)
    return (
        f"<h4>Gate: {failed} of {count} {plural(count, 'condition')} failed</h4>"
        '<div class="wide" role="region" aria-label="Gate" tabindex="0">'
        f'<table class="changes gate"><tbody>{rows}</tbody></table></div>'
    )


def _pair(pair: PairComparison, named: Mapping[int, ChartRun], several: bool) -> str:
    """Write a pair; of several, folded."""
    sides = "".join(
        f'<p class="side"><b>{side}</b> {_run_link(run_title(run), named.get(id(run)))} '
        f'<span class="quiet">{escape(run_origin(run))}</span></p>'
        for side, run in (("A", pair.a), ("B", pair.b))
    )
    facts = [
        *(("not comparable", obstacle, "warn") for obstacle in pair.obstacles),
        ("code", pair.code.text, ""),
        ("counters", pair.counters, ""),
        ("time", pair.time.text, ""),
        *(("note", note, "") for note in pair.notes),
    ]
    rows = "".join(
        f'<dt>{label}</dt><dd class="{look}">{escape(text)}</dd>' for label, text, look in facts
    )
    body = (
        f'<div class="advice"><p class="verdict">{_call(pair)}</p><p>{escape(pair.verdict)}</p>'
        f"</div>{sides}<dl>{rows}</dl>{_figures(pair.figures)}{_lines(pair, named)}"
        f"{_advice('Advice no longer needed', pair.advice_gone)}"
        f"{_advice('New advice', pair.advice_new)}"
    )
    if not several:
        return body
    return (
        f'<details class="run"><summary><h3>{escape(run_title(pair.b))}</h3>{_call(pair)}'
        f"<span>{change_text(pair.time.relative)}</span></summary>{body}</details>"
    )


def _run_link(text: str, named: ChartRun | None) -> str:
    return escape(text) if named is None else f'<a href="#{named.anchor}">{escape(text)}</a>'


def _figures(figures: Iterable[FigureChange]) -> str:
    """Write the figures that differ, by section."""
    changed = [change for change in figures if change.judgement != "same"]
    if not changed:
        return ""
    groups = []
    for section, members in groupby(changed, lambda change: change.section):
        title = SECTION_TITLES.get(section, section.capitalize())
        groups.append(f'<tr class="group"><th scope="rowgroup" colspan="4">{title}</th></tr>')
        groups += [_figure(change) for change in members]
    return (
        "<h4>Figures that differ</h4>"
        '<div class="wide" role="region" aria-label="Figures that differ" tabindex="0">'
        '<table class="changes"><thead><tr><td></td><th scope="col">A</th><th scope="col">B</th>'
        f'<th scope="col">change</th></tr></thead><tbody>{"".join(groups)}</tbody></table></div>'
    )


def _figure(change: FigureChange) -> str:
    a, b = map(escape, figure_texts(change))
    text = change_text(change.relative)
    if change.relative is None:
        text = "from none" if not change.a else "to none" if not change.b else ""
    judged = "" if change.judgement == "changed" else change.judgement
    look = _JUDGEMENT_LOOKS.get(change.judgement, "")
    return (
        f'<tr><th scope="row">{escape(change.label.strip())}</th><td>{a}</td><td>{b}</td>'
        f'<td class="{look}">{escape(" ".join(filter(None, (text, judged))))}</td></tr>'
    )


def _lines(pair: PairComparison, named: Mapping[int, ChartRun]) -> str:
    """Write the source lines whose counters differ; each leads to its place in the source."""
    if not pair.lines:
        return ""
    rows = "".join(_line(pair, line, named) for line in pair.lines)
    return (
        "<h4>Source lines that differ</h4>"
        '<div class="wide" role="region" aria-label="Source lines that differ" tabindex="0">'
        '<table class="changes"><thead><tr><td></td><th scope="col">A</th><th scope="col">B</th>'
        f'<th scope="col">change</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _line(pair: PairComparison, line: LineChange, named: Mapping[int, ChartRun]) -> str:
    run, counters = (pair.b, line.b) if line.b else (pair.a, line.a)
    if counters is None:
        return ""
    chart_run = named.get(id(run))
    number = f"line {counters.line}"
    if chart_run is not None and counters.line:
        number = f'<a href="#{chart_run.anchor}-L{counters.line}">{number}</a>'
    match = "" if line.match == "same" else f' <span class="warn">{line.match}</span>'
    head = (
        f'<tr class="group"><th scope="rowgroup" colspan="4">{number}{match} '
        f"<code>{escape(counters.text.strip())}</code></th></tr>"
    )
    return head + "".join(
        f'<tr><th scope="row">{escape(name.replace("_", " "))}</th><td>{a:,}</td><td>{b:,}</td>'
        f"<td>{change_text((b - a) / a) if a else 'from none'}</td></tr>"
        for name, (a, b) in line.counters.items()
    )


def _advice(title: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<h4>{title}</h4><ul>{items}</ul>" if items else ""


def _alone(comparison: Comparison) -> str:
    items = "".join(
        f"<li>in {side} alone: {escape(run_title(run))}</li>"
        for side, runs in (("A", comparison.only_a), ("B", comparison.only_b))
        for run in runs
    )
    return f"<h4>Without a partner</h4><ul>{items}</ul>" if items else ""
