"""Texts are shortened to fit, and placed where they cover least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from memlab.roofline.plots.label_placement import add_text, fit_text, place_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

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

    def measure(text: Text, *arguments: object, **options: object) -> object:
        measured.append(len(text.get_text()))
        return extent(text, *arguments, **options)

    monkeypatch.setattr(Text, "get_window_extent", measure)
    text = text_of("k" * 50_000 + "m" * 50_000)
    fit_text(text, 2.0)

    start, ellipsis, end = text.get_text().partition("…")
    assert set(start) == {"k"}
    assert set(end) == {"m"}
    assert ellipsis
    assert sum(measured) < 10_000


def empty_axes() -> Axes:
    figure = Figure(figsize=(4, 4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))  # 400 by 400 pixels
    axes.set(xlim=(0, 400), ylim=(0, 400))
    return axes


def placed(axes: Axes, corners: list[tuple[float, float]], **looks: object) -> tuple[bool, int]:
    """Whether a label is free, and the index of its place."""
    text = add_text(axes, "label", **looks)
    free = place_text(text, np.array(corners))
    corner = axes.transAxes.transform(text.get_position())
    distances = [float(np.hypot(*(corner - place))) for place in corners]
    assert min(distances) < 1e-6
    return free, distances.index(min(distances))


def draw_line(axes: Axes) -> None:
    axes.plot([0, 400], [105, 105])


def draw_steps(axes: Axes) -> None:
    axes.hlines([105, 300], [0, 0], [400, 50])


def draw_point(axes: Axes) -> None:
    axes.plot([115], [110], marker="o", ms=9)


def draw_text(axes: Axes) -> None:
    axes.text(90, 90, "another label")


def draw_turned_text(axes: Axes) -> None:
    axes.text(50, 50, "another label, a long one", rotation=45, rotation_mode="anchor")


@pytest.mark.parametrize("draw", [draw_line, draw_steps, draw_point, draw_text, draw_turned_text])
def test_a_label_makes_way_for_everything_on_its_axes(draw: Callable[[Axes], None]) -> None:
    assert placed(empty_axes(), [(100, 100), (200, 300)]) == (True, 0)
    axes = empty_axes()
    draw(axes)
    assert placed(axes, [(100, 100), (200, 300)]) == (True, 1)


def test_a_label_without_a_free_place_covers_least_and_stays_within_the_axes() -> None:
    axes = empty_axes()
    axes.plot([0, 400], [105, 105])
    axes.plot([110, 110], [0, 400])  # crosses the second place, where the first has both lines
    assert placed(axes, [(100, 100), (100, 300), (390, 200)]) == (False, 1)


def test_a_turned_label_is_free_between_lines_of_its_slope() -> None:
    axes = empty_axes()
    for height in (0, 60):
        axes.plot([0, 300], [height, height + 300])
    assert placed(axes, [(100, 120)], rotation=45, rotation_mode="anchor") == (True, 0)
    assert placed(axes, [(200, 220)]) == (False, 0)
