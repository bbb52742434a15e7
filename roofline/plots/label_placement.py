"""Where things stand in a picture, in inches: texts that fit, labels that keep apart."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, cast

from memlab.roofline.units import elide_middle
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

LABEL_GAP_INCHES = 0.2
"""Least distance between the base lines of two labels."""

MIN_NAME_INCHES = 0.7
"""Where less than this is left for a name, what follows it is shortened with it."""

MAX_TEXT_CHARACTERS = 1000
"""No text that must fit is longer, whatever a kernel is called; wider ones measure slowly."""


def fit_text(text: Text, inches: float) -> None:
    """Shorten a text in the middle, with an ellipsis, until it is no wider than so many inches."""
    # Of what matplotlib cannot draw it finds no width.
    whole = printable(elide_middle(text.get_text(), MAX_TEXT_CHARACTERS), but="\n")
    figure = text.get_figure(root=True)

    def too_wide(keep: int) -> bool:
        text.set_text(elide_middle(whole, keep))
        return figure is not None and text.get_window_extent().width / figure.dpi > inches

    if too_wide(len(whole)):
        keep = 2 + bisect_left(range(3, len(whole)), True, key=too_wide)
        text.set_text(elide_middle(whole, keep))


def fit_name(text: Text, name: str, rest: str, inches: float) -> None:
    """Write a name and what tells it from others of that name, and shorten the name first."""
    figure, rest = text.get_figure(root=True), printable(elide_middle(rest, MAX_TEXT_CHARACTERS))
    text.set_text(rest)
    left = inches - (text.get_window_extent().width / figure.dpi if figure and rest else 0.0)
    if left < MIN_NAME_INCHES:
        text.set_text(name + rest)
        fit_text(text, inches)
        return
    text.set_text(name)
    fit_text(text, left)
    text.set_text(text.get_text() + rest)


def spread_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions as little as possible so that neighbours are at least a gap apart.

    Least squares by pooling neighbours that would overlap (isotonic regression).

    Args:
        wanted: Positions in ascending order.
        gap: Least distance.
        low: Least position.
        high: Greatest position; with too many labels for the room they run over it.
    """
    groups: list[list[float]] = []
    for index, position in enumerate(wanted):
        groups.append([position - index * gap])
        while len(groups) > 1 and _mean(groups[-2]) > _mean(groups[-1]):
            last = groups.pop()
            groups[-1].extend(last)
    highest = max(low, high - gap * (len(wanted) - 1))
    flat = [min(max(_mean(group), low), highest) for group in groups for _ in group]
    return [position + index * gap for index, position in enumerate(flat)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def axes_inches(axes: Axes) -> tuple[float, float]:
    """Give the width and height of axes in inches."""
    box = axes.get_position()
    width, height = figure_of(axes).get_size_inches()
    return box.width * width, box.height * height


def figure_of(axes: Axes) -> Figure:
    """Give the figure that axes are on, however deep in subfigures."""
    return cast("Figure", axes.get_figure(root=True))


def point_inches(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Give where a value of log-log axes stands, in inches from their lower left corner."""
    width, height = axes_inches(axes)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    return (
        width * math.log(x / left) / math.log(right / left),
        height * math.log(y / bottom) / math.log(top / bottom),
    )
