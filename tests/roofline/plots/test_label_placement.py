"""Texts that fit: as much of them as there is room for, found in few steps."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from memlab.roofline.plots.label_placement import fit_text

NAMES = [
    "tiled 16",
    "saxpy.cu:saxpy<float, 4>",
    "WWWWWWiiiiii" * 9,
    "日本" * 30,
    "a\nlonger line" * 3,
]


def text_of(name: str) -> Text:
    figure = Figure(dpi=100)
    FigureCanvasAgg(figure)
    return figure.text(0, 0, name)


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("inches", [0.05, 0.5, 1.0, 2.0, 20.0])
def test_as_much_is_kept_as_fits(name: str, inches: float) -> None:
    ways = [
        name[: (keep + 1) // 2] + "…" + name[len(name) - keep // 2 :]
        for keep in range(2, len(name))
    ]
    fitting = [way for way in ways if text_of(way).get_window_extent().width <= 100 * inches]
    longest = fitting[-1] if fitting else ways[0]
    whole = text_of(name).get_window_extent().width <= 100 * inches

    text = text_of(name)
    fit_text(text, inches)

    assert text.get_text() == (name if whole else longest)


def test_a_name_of_any_length_takes_few_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    extent = Text.get_window_extent

    def and_note(text: Text, *given: object, **named: object) -> object:
        measured.append(len(text.get_text()))
        return extent(text, *given, **named)

    monkeypatch.setattr(Text, "get_window_extent", and_note)
    text = text_of("k" * 50_000 + "m" * 50_000)
    fit_text(text, 2.0)

    start, ellipsis, end = text.get_text().partition("…")
    assert set(start) == {"k"}
    assert set(end) == {"m"}
    assert ellipsis
    assert sum(measured) < 10_000
