"""A comparison as Markdown, for a comment on a pull request.

Names and source lines may be another person's: every character that Markdown or HTML could
understand is written as an entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.comparison.wording import (
    change_text,
    figure_texts,
    run_origin,
    run_title,
    value_text,
)
from memlab.roofline.units import elide_middle
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memlab.roofline.comparison.records import Comparison, FigureChange, PairComparison

SYMBOLS = {
    "faster": "🟢",
    "slower": "🔴",
    "wrong output": "🔴",
    "not comparable": "🟡",
    "undecided": "🟡",
    "no difference": "⚪",
    "counters differ": "🟡",
    "no code change": "⚪",
}
STATUSES = {"held": "🔴", "passed": "🟢", "not judged": "🟡"}
MAX_LINES = 20
MAX_LINE_CHARACTERS = 100
_PLAIN = " ,:;%+()=-?>'\"\N{MULTIPLICATION SIGN}\N{PLUS-MINUS SIGN}~"


def comparison_markdown(comparison: Comparison) -> str:
    """Write a comparison as Markdown (GitHub's, with tables)."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    pairs = comparison.pairs
    if len(pairs) == 1:
        yield f"### memlab: {SYMBOLS[pairs[0].call]} {pairs[0].call}"
    else:
        yield f"### memlab: {len(pairs)} kernels compared"
    if comparison.conditions:
        failed = [result for result in comparison.conditions if result.failed]
        yield ""
        yield f"**Gate: {len(failed)} of {len(comparison.conditions)} conditions failed**"
        yield ""
        shown = failed if len(comparison.conditions) > MAX_LINES else comparison.conditions
        for result in shown:
            subject = f"{_safe(result.subject)}: " if len(pairs) > 1 else ""
            condition = f"<code>{_safe(result.condition)}</code>"
            yield f"- {STATUSES[result.status]} {subject}{condition}: {_safe(result.text)}"
    if len(pairs) > 1:
        yield ""
        yield from _table(
            ("kernel", "A", "B", "change", "counters", "verdict"),
            (
                (
                    _safe(run_title(pair.b)),
                    value_text(pair.time.a_s, "s"),
                    value_text(pair.time.b_s, "s"),
                    change_text(pair.time.relative),
                    "differ" if pair.counters_differ else "same",
                    f"{SYMBOLS[pair.call]} {pair.call}",
                )
                for pair in pairs
            ),
        )
    for pair in pairs:
        yield from _pair(pair, alone=len(pairs) == 1)
    for side, runs in (("A", comparison.only_a), ("B", comparison.only_b)):
        for run in runs:
            yield ""
            yield f"In {side} alone: {_safe(run_title(run))}"


def _pair(pair: PairComparison, *, alone: bool) -> Iterator[str]:
    yield ""
    if not alone:
        yield f"<details><summary>{_safe(run_title(pair.b))}</summary>"
        yield ""
    for side, run in (("A", pair.a), ("B", pair.b)):
        yield f"- **{side}** {_safe(run_title(run))}, {_safe(run_origin(run))}"
    for obstacle in pair.obstacles:
        yield f"- **not comparable**: {_safe(obstacle)}"
    for label, text in (
        ("code", pair.code.text),
        ("counters", pair.counters),
        ("time", pair.time.text),
    ):
        yield f"- **{label}** {_safe(text)}"
    for note in pair.notes:
        yield f"- **note** {_safe(note)}"
    changed = [
        change for change in pair.figures if change.judgement not in ("same", "within error")
    ]
    if changed:
        yield ""
        yield from _table(("figure", "A", "B", "change"), map(_figure_row, changed))
    yield from _source_lines(pair)
    if not alone:
        yield ""
        yield "</details>"


def _figure_row(change: FigureChange) -> tuple[str, ...]:
    judgement = change.judgement if change.judgement in ("better", "worse") else ""
    symbol = {"better": " 🟢", "worse": " 🔴"}.get(judgement, "")
    return (
        f"`{change.name}`",
        *map(_safe, figure_texts(change)),
        change_text(change.relative) + symbol,
    )


def _source_lines(pair: PairComparison) -> Iterator[str]:
    rows = []
    for line in pair.lines:
        side = line.b or line.a
        for name in ("global_sectors", "shared_wavefronts", "local_sectors"):
            if side is not None and name in line.counters:
                a, b = line.counters[name]
                change = change_text((b - a) / a) if a else "new"
                text = elide_middle(side.text.strip(), MAX_LINE_CHARACTERS)
                where = str(side.line) if line.b else f"{side.line} of A"
                rows.append(
                    (where, f"<code>{_safe(text)}</code>", f"`{name}`", f"{a:,}", f"{b:,}", change)
                )
    if rows:
        yield ""
        yield "<details><summary>Source lines</summary>"
        yield ""
        yield from _table(("line", "source", "counter", "A", "B", "change"), rows[:MAX_LINES])
        yield ""
        yield "</details>"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    rules = ("---:" if name in ("A", "B", "change") else "---" for name in headings)
    yield f"| {' | '.join(rules)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _safe(text: str) -> str:
    """Write a text so that it stays text: no markup, no mention of a user, no link."""
    shown = printable(text)
    return "".join(
        character
        if character.isalnum()
        or character in _PLAIN
        or (character == "." and not following.isalpha())  # www.example.org would be a link
        else f"&#{ord(character)};"
        for character, following in zip(shown, shown[1:] + " ", strict=True)
    )
