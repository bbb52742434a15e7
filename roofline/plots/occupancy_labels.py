"""Texts on an occupancy curve: each stands where it hides no line, and no line strikes it through.

All is worked out in pixels of the figure, whose size and limits must be final.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from memlab.roofline.plots.label_placement import figure_of
from memlab.roofline.plots.style import QUIET, SMALL_POINTS, halo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    from memlab.roofline.plots.occupancy_curves import Curve, Step

NOT_FITTING = "no block fits"

LINE_POINTS = 2.0
"""Room to the middle of a line."""

MARK_POINTS = 7.0
"""Room to the middle of the block's marker."""

GAPS_POINTS = (5.0, LINE_POINTS + 0.5)
"""Room between the dashed line and a count beside it: enough, or what a narrow range leaves."""

FOOT_POINTS = 6.0
"""Height of a count over the axis, where nothing is in the way."""

RISE_POINTS = 2.0
"""Distance of the heights that are tried."""

LEAST_INCHES = 0.2
"""A range at least this wide carries its number of blocks."""

ROOMY_INCHES = 0.8
"""A range wider than this says `blocks` besides."""

Corner = tuple[float, float]


def write_texts(axes: Axes, curve: Curve, value: str) -> None:
    """Write what the block's own value is, and how many blocks fit along the curve.

    Args:
        axes: With the curve drawn, their size and limits final.
        curve: What is drawn.
        value: The text beside the block's own marker.
    """
    taken = list(_lines(axes, curve))
    text = axes.text(0, 0, value, fontsize=SMALL_POINTS, fontweight="bold", path_effects=halo())
    _put(text, _beside_mark(axes, curve, text), taken, must=True)
    for blocks, alike in groupby(curve.steps, key=_blocks):
        steps = list(alike)
        low, high = _pixels(axes, steps[0].first - 1, 0)[0], _pixels(axes, steps[-1].last, 0)[0]
        inches = (high - low) / figure_of(axes).dpi
        if inches >= LEAST_INCHES:
            full = count_text(blocks) if inches > ROOMY_INCHES else str(blocks)
            text = axes.text(
                0, 0, full if blocks else NOT_FITTING, fontsize=SMALL_POINTS, color=QUIET
            )
            _put(text, _within(axes, curve, text, low, high), taken)


def count_text(blocks: int) -> str:
    """Say how many blocks."""
    return f"{blocks} block{'' if blocks == 1 else 's'}"


def _blocks(step: Step) -> int:
    return step.occupancy.blocks_per_sm if step.occupancy else 0


def _lines(axes: Axes, curve: Curve) -> Iterator[Bbox]:
    """Boxes around the steps, the uprights between them, the marker and its dashed line."""
    margin, warps = LINE_POINTS, curve.here.warps_per_sm
    for step in curve.steps:
        height = step.warps_per_sm
        yield _box(axes, (step.first - 1, height), (step.last, height), margin)
    for step, following in zip(curve.steps, curve.steps[1:], strict=False):
        heights = sorted((step.warps_per_sm, following.warps_per_sm))
        yield _box(axes, (step.last, heights[0]), (step.last, heights[1]), margin)
    yield _box(axes, (curve.current, 0), (curve.current, warps), margin)
    yield _box(axes, (curve.current, warps), (curve.current, warps), MARK_POINTS)


def _beside_mark(axes: Axes, curve: Curve, text: Text) -> list[Corner]:
    """Places by the marker, the nearest first: rather over it than under, and where room is."""
    point = figure_of(axes).dpi / 72
    x, y = _pixels(axes, curve.current, curve.here.warps_per_sm)
    size = text.get_window_extent()
    right, left = x + 4 * point, x - 4 * point - size.width
    sides = (left, right) if 2 * curve.current > curve.steps[-1].last else (right, left)
    over, under = y + MARK_POINTS * point, y - MARK_POINTS * point - size.height
    heights = [(at - over, at) for at in _heights(over, axes.bbox.y1 - size.height, point)]
    heights += [
        (under - at + size.height, at) for at in _heights(axes.bbox.y0 + point, under, point)
    ]
    return [
        (side, at)
        for _, at in sorted(heights)
        for side in sides
        if axes.bbox.x0 <= side <= axes.bbox.x1 - size.width
    ]


def _within(axes: Axes, curve: Curve, text: Text, low: float, high: float) -> Iterator[Corner]:
    """Places in a range of pixels, the lowest first: in its middle, or beside the dashed line."""
    point = figure_of(axes).dpi / 72
    size = text.get_window_extent()
    middle, mark = (low + high - size.width) / 2, _pixels(axes, curve.current, 0)[0]
    for height in _heights(axes.bbox.y0 + FOOT_POINTS * point, axes.bbox.y1 - size.height, point):
        yield middle, height
        for room in (gap * point for gap in GAPS_POINTS):
            for x in (mark + room, mark - room - size.width):
                if low <= x <= high - size.width:
                    yield x, height


def _heights(first: float, last: float, point: float) -> Iterator[float]:
    while first <= last:
        yield first
        first += RISE_POINTS * point


def _put(text: Text, places: Iterable[Corner], taken: list[Bbox], must: bool = False) -> None:
    """Put a text at the first place that is free and take that; without one, leave it out.

    Args:
        text: What is placed by its lower left corner.
        places: That corner, in pixels.
        taken: Boxes in pixels, to which the text's own is added.
        must: Whether the text stands at the first place of all where none is free.
    """
    from matplotlib.transforms import Bbox

    axes, size = text.axes, text.get_window_extent()
    boxes = [Bbox.from_bounds(x, y, size.width, size.height) for x, y in places]
    free = [box for box in boxes if not any(map(box.overlaps, taken))]
    if axes is None or not (free or (must and boxes)):
        text.remove()
        return
    box = free[0] if free else boxes[0]
    taken.append(box)
    # Fractions of the axes: files may have another resolution than the figure.
    text.set(transform=axes.transAxes, ha="left", va="bottom", zorder=6)
    text.set_position(axes.transAxes.inverted().transform(box.min).tolist())


def _box(axes: Axes, low: Corner, high: Corner, margin_points: float) -> Bbox:
    """Give a box in pixels around two corners in the curve's own units."""
    from matplotlib.transforms import Bbox

    corners: Sequence[Corner] = (_pixels(axes, *low), _pixels(axes, *high))
    return Bbox(corners).padded(margin_points * figure_of(axes).dpi / 72)


def _pixels(axes: Axes, x: float, y: float) -> Corner:
    at = axes.transData.transform((x, y))
    return float(at[0]), float(at[1])
