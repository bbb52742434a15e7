"""Texts on an occupancy curve: each stands where it hides no line, and no line strikes it through.

All is worked out in pixels of the figure, whose size and limits must be final.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from memlab.roofline.plots.label_placement import figure_of
from memlab.roofline.plots.style import SECONDARY_INK, SMALL_POINTS, text_halo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    from memlab.roofline.plots.occupancy_curves import CurveStep, OccupancyCurve

NO_BLOCK_FITS_TEXT = "no block fits"

LINE_CLEARANCE_POINTS = 2.0
"""Room to the middle of a line."""

MARKER_CLEARANCE_POINTS = 7.0
"""Room to the middle of the block's marker."""

COUNT_GAPS_POINTS = (5.0, LINE_CLEARANCE_POINTS + 0.5)
"""Room between the dashed line and a count beside it: enough, or what a narrow range leaves."""

COUNT_HEIGHT_POINTS = 6.0
"""Height of a count over the axis, where nothing is in the way."""

HEIGHT_STEP_POINTS = 2.0
"""Distance of the heights that are tried."""

MIN_COUNT_INCHES = 0.2
"""A range at least this wide carries its number of blocks."""

MIN_UNIT_INCHES = 0.8
"""A range wider than this says `blocks` besides."""

Position = tuple[float, float]


def write_texts(axes: Axes, curve: OccupancyCurve, value: str) -> None:
    """Write what the block's own value is, and how many blocks fit along the curve.

    Args:
        axes: With the curve drawn, their size and limits final.
        curve: What is drawn.
        value: The text beside the block's own marker.
    """
    taken = list(_line_boxes(axes, curve))
    text = axes.text(
        0, 0, value, fontsize=SMALL_POINTS, fontweight="bold", path_effects=text_halo()
    )
    _place_text(text, _marker_label_positions(axes, curve, text), taken, must=True)
    for blocks, alike in groupby(curve.steps, key=_blocks):
        steps = list(alike)
        low, high = _pixels(axes, steps[0].first - 1, 0)[0], _pixels(axes, steps[-1].last, 0)[0]
        inches = (high - low) / figure_of(axes).dpi
        if inches >= MIN_COUNT_INCHES:
            full = block_count_text(blocks) if inches > MIN_UNIT_INCHES else str(blocks)
            text = axes.text(
                0,
                0,
                full if blocks else NO_BLOCK_FITS_TEXT,
                fontsize=SMALL_POINTS,
                color=SECONDARY_INK,
            )
            _place_text(text, _range_label_positions(axes, curve, text, low, high), taken)


def block_count_text(blocks: int) -> str:
    """Say how many blocks."""
    return f"{blocks} block{'' if blocks == 1 else 's'}"


def _blocks(step: CurveStep) -> int:
    return step.occupancy.blocks_per_sm if step.occupancy else 0


def _line_boxes(axes: Axes, curve: OccupancyCurve) -> Iterator[Bbox]:
    """Boxes around the steps, the uprights between them, the marker and its dashed line."""
    margin, warps = LINE_CLEARANCE_POINTS, curve.current_step.warps_per_sm
    for step in curve.steps:
        height = step.warps_per_sm
        yield _pixel_box(axes, (step.first - 1, height), (step.last, height), margin)
    for step, following in zip(curve.steps, curve.steps[1:], strict=False):
        heights = sorted((step.warps_per_sm, following.warps_per_sm))
        yield _pixel_box(axes, (step.last, heights[0]), (step.last, heights[1]), margin)
    yield _pixel_box(axes, (curve.current, 0), (curve.current, warps), margin)
    yield _pixel_box(axes, (curve.current, warps), (curve.current, warps), MARKER_CLEARANCE_POINTS)


def _marker_label_positions(axes: Axes, curve: OccupancyCurve, text: Text) -> list[Position]:
    """Places by the marker, the nearest first: rather over it than under, and where room is."""
    point = figure_of(axes).dpi / 72
    x, y = _pixels(axes, curve.current, curve.current_step.warps_per_sm)
    size = text.get_window_extent()
    right, left = x + 4 * point, x - 4 * point - size.width
    sides = (left, right) if 2 * curve.current > curve.steps[-1].last else (right, left)
    over, under = (
        y + MARKER_CLEARANCE_POINTS * point,
        y - MARKER_CLEARANCE_POINTS * point - size.height,
    )
    heights = [
        (at - over, at) for at in _candidate_heights(over, axes.bbox.y1 - size.height, point)
    ]
    heights += [
        (under - at + size.height, at)
        for at in _candidate_heights(axes.bbox.y0 + point, under, point)
    ]
    return [
        (side, at)
        for _, at in sorted(heights)
        for side in sides
        if axes.bbox.x0 <= side <= axes.bbox.x1 - size.width
    ]


def _range_label_positions(
    axes: Axes, curve: OccupancyCurve, text: Text, low: float, high: float
) -> Iterator[Position]:
    """Places in a range of pixels, the lowest first: in its middle, or beside the dashed line."""
    point = figure_of(axes).dpi / 72
    size = text.get_window_extent()
    middle, mark = (low + high - size.width) / 2, _pixels(axes, curve.current, 0)[0]
    for height in _candidate_heights(
        axes.bbox.y0 + COUNT_HEIGHT_POINTS * point, axes.bbox.y1 - size.height, point
    ):
        yield middle, height
        for room in (gap * point for gap in COUNT_GAPS_POINTS):
            for x in (mark + room, mark - room - size.width):
                if low <= x <= high - size.width:
                    yield x, height


def _candidate_heights(first: float, last: float, point: float) -> Iterator[float]:
    while first <= last:
        yield first
        first += HEIGHT_STEP_POINTS * point


def _place_text(
    text: Text, places: Iterable[Position], taken: list[Bbox], must: bool = False
) -> None:
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


def _pixel_box(axes: Axes, low: Position, high: Position, margin_points: float) -> Bbox:
    """Give a box in pixels around two corners in the curve's own units."""
    from matplotlib.transforms import Bbox

    corners: Sequence[Position] = (_pixels(axes, *low), _pixels(axes, *high))
    return Bbox(corners).padded(margin_points * figure_of(axes).dpi / 72)


def _pixels(axes: Axes, x: float, y: float) -> Position:
    at = axes.transData.transform((x, y))
    return float(at[0]), float(at[1])
