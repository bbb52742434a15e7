"""Source lines of two runs, matched by their text, and how their counters differ.

Lines are matched as `diff` does, not by number: an edit above a line moves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from memlab.device.measurement import LineCounters
from memlab.roofline.comparison.records import LineChange

LINE_COUNTERS = tuple(name for name in LineCounters.names() if name not in ("line", "text"))
"""The counters of a line, in the order of documents."""

EDITED_SHARE = 0.6
"""Two lines in the same place whose texts are that alike are one line, edited: the ratio of
`difflib.get_close_matches`."""

Match: TypeAlias = tuple[
    Literal["same", "edited", "gone", "new"], LineCounters | None, LineCounters | None
]
"""How two lines match, the line of A and the line of B."""

_COMMENT = re.compile(r"//.*|/\*.*?\*/")


def compare_lines(
    first: Sequence[LineCounters], second: Sequence[LineCounters]
) -> list[LineChange]:
    """Match the lines of two runs and keep those whose counters differ.

    Args:
        first: The lines of run A that have instructions, in the order of the source.
        second: Those of run B.

    Returns:
        The lines that differ, in the order of the sources.
    """
    return [
        LineChange(match, a, b, counters)
        for match, a, b in _matched(first, second)
        if (counters := _differing(a, b))
    ]


def line_counter(figure: str) -> str | None:
    """Name the counter of lines that tells where a figure of the launch comes from.

    Args:
        figure: The figure's name, such as `global_load_sectors`.

    Returns:
        Such as `global_sectors`; None for figures that lines do not have.
    """
    if figure in LINE_COUNTERS:
        return figure
    for beginning, ending, counter in _LINE_COUNTER_RULES:
        if figure.startswith(beginning) and ending in figure:
            return counter
    return None


def grown_lines(lines: Sequence[LineChange], figure: str) -> list[LineChange]:
    """Choose the lines of B at which a figure of the launch grew, those that grew most first."""
    counter = line_counter(figure)
    grown = [
        line
        for line in lines
        if line.b is not None
        and line.b.line > 0
        and counter in line.counters
        and line.counters[counter][1] > line.counters[counter][0]
    ]
    return sorted(
        grown, key=lambda line: line.counters[counter or ""][0] - line.counters[counter or ""][1]
    )


_LINE_COUNTER_RULES = (
    ("global_", "_requests", "global_requests"),
    ("global_", "_sectors", "global_sectors"),
    ("global_", "_lines", "global_lines"),
    ("global_", "_used_bytes", "global_used_bytes"),
    ("requested_", "", "requested_bytes"),
    ("l1_bytes", "", "global_sectors"),
    ("l2_", "", "global_sectors"),
    ("lrc_", "", "global_sectors"),
    ("dram_", "", "global_sectors"),
    ("shared_excessive", "", "shared_excessive_wavefronts"),
    ("shared_", "wavefronts", "shared_wavefronts"),
    ("shared_", "_instructions", "shared_instructions"),
    ("local_", "_sectors", "local_sectors"),
    ("spill_", "", "local_requests"),
    ("constant_", "_requests", "constant_requests"),
    ("constant_", "_passes", "constant_passes"),
    ("flop_", "", "flop"),
)
"""How names of figures begin, what they contain, and the counter of lines; the first counts."""


def _differing(a: LineCounters | None, b: LineCounters | None) -> dict[str, tuple[int, int]]:
    values = {
        name: (getattr(a, name) if a else 0, getattr(b, name) if b else 0) for name in LINE_COUNTERS
    }
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _matched(first: Sequence[LineCounters], second: Sequence[LineCounters]) -> Iterator[Match]:
    old, new = ([_normalised(line.text) for line in lines] for lines in (first, second))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for operation, a_start, a_end, b_start, b_end in matcher.get_opcodes():
        if operation == "equal":
            for a, b in zip(first[a_start:a_end], second[b_start:b_end], strict=True):
                yield "same", a, b
        else:
            yield from _edited(first[a_start:a_end], second[b_start:b_end])


def _edited(first: Sequence[LineCounters], second: Sequence[LineCounters]) -> Iterator[Match]:
    """Pair the lines of a block that was replaced, in order, where their texts are alike."""
    rest = list(second)
    for a in first:
        place = next((at for at, b in enumerate(rest) if _alike(a, b)), None)
        if place is None:
            yield "gone", a, None
            continue
        for b in rest[:place]:
            yield "new", None, b
        yield "edited", a, rest[place]
        rest = rest[place + 1 :]
    for b in rest:
        yield "new", None, b


def _alike(a: LineCounters, b: LineCounters) -> bool:
    texts = _normalised(a.text), _normalised(b.text)
    return SequenceMatcher(None, *texts, autojunk=False).ratio() >= EDITED_SHARE


def _normalised(text: str) -> str:
    """A line without comments and without white space that means nothing."""
    return " ".join(_COMMENT.sub(" ", text).split())
