"""Label placement: texts that fit, labels at the ends of lines, and labels that cover least."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from memlab.roofline.plots.style import SMALL_POINTS, text_halo
from memlab.roofline.units import elide_middle
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import BboxBase
    from numpy.typing import NDArray

    Pixels = NDArray[np.float64]
    """Positions in pixels of the figure, a row each: `(n, 2)`."""

LABEL_GAP_INCHES = 0.19
"""Least distance between the centres of two labels, one above the other."""

LEADER_INCHES = (0.0, 0.1, 0.16, 0.2)
"""Right of the axes: where a leader leaves its line, reaches its label's height, ends, and where
the label starts."""

MIN_NAME_INCHES = 0.7
"""Where less than this is left for a name, the text behind it is shortened with it."""

MAX_TEXT_CHARACTERS = 1000
"""A longer text is shortened before it is measured, which would take long."""

CLEARANCE_POINTS = 1.5
"""Free space around a placed text."""

SAMPLE_PIXELS = 4.0
"""Distance of the points that lines and texts are sampled at; a line of text is 20 pixels high."""

OUTSIDE_COST = 100_000
"""The cost of a place outside of the axes, more than any number of covered samples."""


def fit_text(text: Text, inches: float) -> None:
    """Shorten a text in the middle, with an ellipsis, until it is no wider than `inches`."""
    # Matplotlib cannot measure characters that it cannot draw.
    whole = printable(elide_middle(text.get_text(), MAX_TEXT_CHARACTERS), but="\n")

    def too_wide(keep: int) -> bool:
        text.set_text(elide_middle(whole, keep))
        return text_inches(text) > inches

    if too_wide(len(whole)):
        keep = 2 + bisect_left(range(3, len(whole)), True, key=too_wide)
        text.set_text(elide_middle(whole, keep))


def fit_name(text: Text, name: str, suffix: str, inches: float) -> None:
    """Write a name and the suffix that tells it from its equals; shorten the name first."""
    suffix = printable(elide_middle(suffix, MAX_TEXT_CHARACTERS))
    text.set_text(suffix)
    room = inches - (text_inches(text) if suffix else 0.0)
    if room < MIN_NAME_INCHES:
        text.set_text(name + suffix)
        fit_text(text, inches)
    else:
        text.set_text(name)
        fit_text(text, room)
        text.set_text(text.get_text() + suffix)


def add_text(axes: Axes, label: str, **looks: Any) -> Text:
    """Add a small text to axes, readable over lines, for `place_text`."""
    defaults: dict[str, Any] = {"fontsize": SMALL_POINTS, "path_effects": text_halo()}
    return axes.text(0, 0, label, **defaults | looks)


def points_to_pixels(axes: Axes) -> float:
    """Return the pixels per point on the figure of axes."""
    return figure_of(axes).dpi / 72


def text_inches(text: Text) -> float:
    """Return the width of a text that is on a figure, in inches."""
    figure = text.get_figure(root=True)
    return text.get_window_extent().width / figure.dpi if figure else 0.0


def figure_of(axes: Axes) -> Figure:
    """Return the figure that axes are on, however deep in subfigures."""
    return cast("Figure", axes.get_figure(root=True))


def spread_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions as little as possible so that neighbours are at least a gap apart.

    Least squares by pooling neighbours that would overlap (isotonic regression).

    Args:
        wanted: Positions in ascending order.
        gap: Least distance.
        low: Least position.
        high: Greatest position; too many labels for the range exceed it.
    """
    groups: list[list[float]] = []
    for index, position in enumerate(wanted):
        groups.append([position - index * gap])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            last = groups.pop()
            groups[-1].extend(last)
    highest = max(low, high - gap * (len(wanted) - 1))
    flat = [min(max(float(np.mean(group)), low), highest) for group in groups for _ in group]
    return [position + index * gap for index, position in enumerate(flat)]


def label_line_ends(
    axes: Axes,
    ends: Sequence[tuple[float, float]],
    labels: Sequence[tuple[str, str]],
    looks: Sequence[dict[str, Any]],
    inches: float,
) -> None:
    """Write labels right of the axes, one above the other, each with a leader to its line.

    Args:
        axes: With final size and limits.
        ends: Where the leader of every label starts, in data coordinates.
        labels: A name and a suffix per line, as in `fit_name`.
        looks: Colour and line style of every leader.
        inches: Greatest width of a label.
    """
    if not ends:
        return
    dpi = figure_of(axes).dpi
    width, height = axes.bbox.width / dpi, axes.bbox.height / dpi
    points = axes.transAxes.inverted().transform(axes.transData.transform(ends))
    order = np.argsort(points[:, 1], kind="stable")
    wanted = [float(points[index, 1]) * height for index in order]
    heights = spread_positions(wanted, LABEL_GAP_INCHES, 0.1, height - 0.1)
    *leader, start = (1.0 + distance / width for distance in LEADER_INCHES)
    for index, at in zip(order, heights, strict=True):
        x, y = points[index].clip(0.0, 1.0)
        axes.plot(
            [x, *leader],
            [y, y, at / height, at / height],
            transform=axes.transAxes,
            lw=0.8,
            alpha=0.6,
            clip_on=False,
            zorder=1,
            **looks[index],
        )
        text = axes.text(
            start, at / height, "", transform=axes.transAxes, va="center", fontsize=SMALL_POINTS
        )
        name, suffix = labels[index]
        fit_name(text, name, suffix, inches)


def place_text(text: Text, corners: Pixels) -> bool:
    """Put a text at the first of the places where it covers least, within its axes if it can.

    Lines, their markers and other texts of the axes count by the part that the text would cover.

    Args:
        text: On axes with final size and limits; its rotation is final too.
        corners: Places of its lower left corner, along its rotation, in order of preference.

    Returns:
        Whether it covers nothing and lies within the axes.
    """
    axes, angle = cast("Axes", text.axes), np.radians(float(text.get_rotation()))
    margin = CLEARANCE_POINTS * points_to_pixels(axes)
    width, height = size = text_size(text)
    # In the text's frame it is upright.
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    outline = np.array([(0, 0), (width, 0), (0, height), (width, height)]) @ turn.T
    taken = np.concatenate([np.empty((0, 2)), *_samples(axes, text)]) @ turn
    best, least = corners[0], float("inf")
    for corner in corners:
        low = corner @ turn
        covers = ((taken > low - margin) & (taken < low + size + margin)).all(axis=1)
        ends = corner + outline
        leaves = ((ends < axes.bbox.min) | (ends > axes.bbox.max)).any()
        cost = int(np.count_nonzero(covers)) + (OUTSIDE_COST if leaves else 0)
        if cost < least:
            best, least = corner, cost
        if not cost:
            break
    # Fractions of the axes, since files may have another resolution than the figure.
    text.set(
        position=axes.transAxes.inverted().transform(best).tolist(),
        transform=axes.transAxes,
        ha="left",
        va="bottom",
        rotation_mode="anchor",
    )
    return least == 0


def text_size(text: Text) -> Pixels:
    """Return the width and height of a text before its rotation, in pixels."""
    angle = text.get_rotation()
    text.set_rotation(0)
    size = text.get_window_extent().size
    text.set_rotation(angle)
    return cast("Pixels", size)


def _samples(axes: Axes, but: Text) -> Iterator[Pixels]:
    """Sample the lines, markers and texts of axes, except one text."""
    from matplotlib.collections import LineCollection

    for line in axes.lines:
        points = line.get_transform().transform(line.get_xydata())
        yield from _line_samples(points, axes.bbox)
        if line.get_marker() not in ("", "None", None):
            radius = line.get_markersize() / 2 * points_to_pixels(axes)
            yield from (_area_samples(point - radius, point + radius) for point in points)
    for collection in axes.collections:
        if isinstance(collection, LineCollection):
            for segment in collection.get_segments():
                yield from _line_samples(axes.transData.transform(segment), axes.bbox)
    for text in axes.texts:
        if text is not but:
            box = text.get_window_extent()
            if text.get_rotation():  # its middle line lies near the diagonal
                yield from _line_samples(np.array([box.min, box.max]), axes.bbox)
            else:
                yield _area_samples(np.array(box.min), np.array(box.max))


def _line_samples(points: Pixels, box: BboxBase) -> Iterator[Pixels]:
    inside = np.clip(points[np.isfinite(points).all(axis=1)], box.min, box.max)
    for start, end in pairwise(inside):
        steps = int(np.abs(end - start).max() / SAMPLE_PIXELS) + 2
        yield np.linspace(start, end, steps)


def _area_samples(low: Pixels, high: Pixels) -> Pixels:
    axis = [np.arange(a, b, SAMPLE_PIXELS) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axis), axis=-1).reshape(-1, 2)
