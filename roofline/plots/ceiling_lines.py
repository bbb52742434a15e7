"""Roofs with their labels, and ridge points."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.roofline.ceilings import MEMORY_LEVELS, ceilings_by_key
from memlab.roofline.plots.label_placement import (
    LABEL_GAP_INCHES,
    axes_inches,
    figure_of,
    point_inches,
)
from memlab.roofline.plots.style import INK, MARKERS, SECONDARY_INK, SMALL_POINTS, text_halo
from memlab.roofline.units import sentence_number, si_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes
    from matplotlib.transforms import BboxBase

    from memlab.roofline.run import Ceiling

MAIN_CEILINGS = (*MEMORY_LEVELS, "fp32")
"""The ceilings that are always drawn; another peak is drawn when a run used its pipe."""

DOT_INCHES = 0.1
"""Distance between the dots that stand for a line where a label is placed."""

POINT_COVER_WEIGHT = 10
"""Dots that a label rather covers than a kernel's point: an inch of a line."""

LABEL_STEP_INCHES = 0.02
"""Distance between the places along a roof that are tried for its label."""

LABEL_OFFSETS_INCHES = (0.0, 0.09)
"""How far off its roof a label may stand: close, or with room for points just under the roof."""

MARKER_TO_TEXT_INCHES = 0.13
"""From the middle of the marker before a roof's label to the text."""

POINT_INCHES = 0.07
"""Room that a kernel's point takes around its centre."""

SMALL_TEXT_HEIGHT_INCHES = 0.17
"""Room that a line of small text takes in height."""

Point = tuple[float, float]
Line = tuple[Point, Point]

SAME_VALUE_TOLERANCE = 0.01
"""Measured anew within this share: the label need not say it twice."""

MEASURED_LINE_STYLE: dict[str, Any] = {
    "color": INK,
    "lw": 1.0,
    "linestyle": (0, (4, 2)),
    "zorder": 2,
}
"""Matplotlib's looks of a measured ceiling."""


def other_peaks(ceilings: Sequence[Ceiling], pipes: Collection[str]) -> list[Ceiling]:
    """Give the compute peaks that are drawn besides FP32's, since a run used their pipe."""
    return [
        each
        for each in ceilings
        if each.kind == "compute" and each.key in pipes and each.key not in MAIN_CEILINGS
    ]


def draw_ceilings(
    axes: Axes,
    ceilings: Sequence[Ceiling],
    measured: Sequence[Ceiling],
    pipes: Collection[str],
    points: Sequence[Point],
    lines: Sequence[Line] = (),
) -> None:
    """Draw a device's roofs and ridge points on log-log axes whose size and limits are final.

    Args:
        axes: Where to draw.
        ceilings: The device's.
        measured: What was reached of them: a dashed line each and a second figure in its label.
        pipes: Keys of the peaks of the pipes that the runs used.
        points: Kernels' points, which the labels leave free if they can, in FLOP/B and FLOP/s.
        lines: Kernels' lines, which are worth less to the labels than a point.
    """
    heights = [point_inches(axes, *point)[1] for point in points]
    known, reached = ceilings_by_key(ceilings), ceilings_by_key(measured)
    bandwidths = [known[level] for level in MEMORY_LEVELS if level in known]
    bandwidths.sort(key=lambda ceiling: -ceiling.value)
    peak, others = known.get("fp32"), other_peaks(ceilings, pipes)
    highest = max((each.value for each in (peak, *others) if each), default=axes.get_ylim()[1])
    written = []
    if peak:
        measured_one = reached.get("fp32")
        written.append(_draw_peak(axes, peak, bandwidths, highest, "solid", measured_one, heights))
        _draw_ridges(axes, peak, bandwidths, heights)
    for each in _merge_equal_peaks(others):
        measured_one = reached.get(each.key)
        written.append(_draw_peak(axes, each, bandwidths, highest, "dashed", measured_one, heights))
    roofs = {each.key: _bandwidth_line(axes, each, highest) for each in bandwidths}
    for index, ceiling in enumerate(bandwidths):
        below, measured_one = _is_label_below(bandwidths, index), reached.get(ceiling.key)
        _draw_bandwidth(axes, ceiling, highest, measured_one)
        in_the_way = [*lines, *written, *(roofs[key] for key in roofs if key != ceiling.key)]
        _draw_bandwidth_label(axes, ceiling, highest, measured_one, below, points, in_the_way)


def _merge_equal_peaks(peaks: Sequence[Ceiling]) -> list[Ceiling]:
    """Make one roof of peaks that are equal, as those of FP16 and BF16 are, under both names."""
    alike: dict[float, list[Ceiling]] = {}
    for each in peaks:
        alike.setdefault(each.value, []).append(each)
    return [
        replace(same[0], label=_joined_labels([each.label for each in same]))
        for same in alike.values()
    ]


def _joined_labels(labels: Sequence[str]) -> str:
    """Join names; what all end in is said once: `FP16 and BF16 tensor`."""
    firsts, lasts = zip(*(label.rpartition(" ")[::2] for label in labels), strict=True)
    if len(labels) == 1 or not all(firsts) or len(set(lasts)) > 1:
        return " and ".join(labels)
    return f"{' and '.join(firsts)} {lasts[0]}"


def _is_label_below(bandwidths: Sequence[Ceiling], index: int) -> bool:
    """Put the lowest roof's label under it, the highest's over it, others' where more room is."""
    if index in (0, len(bandwidths) - 1):
        return index > 0 or len(bandwidths) == 1
    over = bandwidths[index - 1].value / bandwidths[index].value
    under = bandwidths[index].value / bandwidths[index + 1].value
    return under > over


def _draw_bandwidth(axes: Axes, ceiling: Ceiling, highest: float, reached: Ceiling | None) -> None:
    for each, looks in (
        (ceiling, {"color": INK, "lw": 1.8, "zorder": 2}),
        (reached, MEASURED_LINE_STYLE),
    ):
        if each:
            axes.plot(*zip(*_bandwidth_line(axes, each, highest), strict=True), **looks)


def _bandwidth_line(axes: Axes, ceiling: Ceiling, highest: float) -> Line:
    """Where a bandwidth's roof enters the axes and where the highest peak ends it."""
    (left, right), bottom = axes.get_xlim(), axes.get_ylim()[0]
    first, last = max(left, bottom / ceiling.value), min(right, highest / ceiling.value)
    return (first, first * ceiling.value), (last, last * ceiling.value)


def _draw_bandwidth_label(
    axes: Axes,
    ceiling: Ceiling,
    highest: float,
    reached: Ceiling | None,
    below: bool,
    points: Sequence[Point],
    lines: Sequence[Line],
) -> None:
    """Write a roof's label along it, led by its level's marker, where it covers least."""
    from matplotlib.transforms import Affine2D

    width, height = axes_inches(axes)
    angle = _slope_degrees(axes)
    entrance, end = (point_inches(axes, *each) for each in _bandwidth_line(axes, ceiling, highest))
    # The roof's own frame: inches along it from where it enters the axes, and off it.
    roof = Affine2D().scale(1, -1 if below else 1).rotate_deg(angle).translate(*entrance)
    frame = roof + Affine2D().scale(1 / width, 1 / height) + axes.transAxes

    label = axes.text(
        0,
        0,
        _ceiling_text(ceiling, "B/s", reached=reached),
        va="top" if below else "bottom",
        transform=frame,
        rotation_mode="anchor",
        fontsize=SMALL_POINTS,
        zorder=7,  # a point may lie under a label, never over it
        path_effects=text_halo(),
    )
    box, dots_per_inch = label.get_window_extent(), figure_of(axes).dpi
    shape = MARKER_TO_TEXT_INCHES + box.width / dots_per_inch, box.height / dots_per_inch

    def turned(places: Sequence[Point]) -> list[Point]:
        return [(x, y) for x, y in roof.inverted().transform(places).tolist()] if places else []

    marks = [point_inches(axes, *point) for point in points]
    dots = [
        dot
        for foot, top in lines
        for dot in _sample_line(*(point_inches(axes, *p) for p in (foot, top)))
    ]
    last = (
        math.dist(entrance, end) - shape[0] - SMALL_TEXT_HEIGHT_INCHES
    )  # below what the peaks are called
    tried = []
    for lift in LABEL_OFFSETS_INCHES:
        first = 0.22 + lift * math.tan(math.radians(angle))  # up to the axis on the left
        covered, start = _least_covered_start(first, last, shape, turned(marks), turned(dots), lift)
        tried.append((covered, lift, start))
    _, lift, start = min(tried)
    label.set(position=(start + MARKER_TO_TEXT_INCHES, 0.055 + lift), rotation=angle)
    # Upright: a turned square would be another level's marker.
    axes.plot(
        [start],
        [0.125 + lift],
        marker=MARKERS[ceiling.key],
        ms=7,
        color=INK,
        ls="none",
        transform=frame,
        zorder=7,
    )


def _sample_line(start: Point, end: Point) -> list[Point]:
    """Make points, in inches, of a line between two."""
    steps = max(1, round(math.dist(start, end) / DOT_INCHES))
    return [
        (start[0] + (end[0] - start[0]) * i / steps, start[1] + (end[1] - start[1]) * i / steps)
        for i in range(steps + 1)
    ]


def _least_covered_start(
    first: float,
    last: float,
    shape: tuple[float, float],
    points: Sequence[Point],
    dots: Sequence[Point],
    lift: float,
) -> tuple[int, float]:
    """Find the first start along a roof where a label covers fewest points and dots.

    Args:
        first: Least start along the roof in inches.
        last: Greatest.
        shape: The label's length along the roof and reach off it, in inches.
        points: Their places along the roof and off it to the label's side, in inches.
        dots: Those of what lines are made of.
        lift: How far off the roof the label stands, in inches.

    Returns:
        What it covers there, in dots, and the start.
    """
    reach = lift + shape[1]
    near = [along for along, off in points if lift - POINT_INCHES < off < reach + POINT_INCHES]
    crossing = [along for along, off in dots if lift < off < reach]

    def covered(start: float) -> int:
        end = start + shape[0] + POINT_INCHES
        marks = sum(start - POINT_INCHES < along < end for along in near)
        return POINT_COVER_WEIGHT * marks + sum(start < along < end for along in crossing)

    steps = max(0, int((last - first) / LABEL_STEP_INCHES))
    starts = [first + step * LABEL_STEP_INCHES for step in range(steps + 1)]
    return min((covered(start), start) for start in starts)


def _draw_peak(
    axes: Axes,
    ceiling: Ceiling,
    bandwidths: Sequence[Ceiling],
    highest: float,
    style: str,
    reached: Ceiling | None,
    heights: Sequence[float],
) -> Line:
    """Draw a peak with its label over it, or under it where a kernel's line is in the way.

    Where bandwidths' roofs go on to a higher peak and would cross the label, it stands before it.

    Returns:
        Where the label lies: a line through its middle.
    """
    left, right = axes.get_xlim()
    if bandwidths:
        left = max(left, ceiling.value / bandwidths[0].value)
    axes.plot([left, right], [ceiling.value] * 2, color=INK, lw=1.8, linestyle=style, zorder=2)
    if reached:
        axes.plot([left, right], [reached.value] * 2, **MEASURED_LINE_STYLE)
    at = point_inches(axes, right, ceiling.value)[1]
    over, under = (
        sum(low < height < low + SMALL_TEXT_HEIGHT_INCHES for height in heights)
        for low in (at, at - SMALL_TEXT_HEIGHT_INCHES)
    )
    label = axes.annotate(
        _ceiling_text(ceiling, "FLOP/s", "peak", reached),
        xy=(right, ceiling.value),
        xytext=(-4, -3 if over > under else 3),
        textcoords="offset points",
        ha="right",
        va="top" if over > under else "bottom",
        fontsize=SMALL_POINTS,
        zorder=7,
        path_effects=text_halo(),
    )
    room = axes.transData.transform((left, ceiling.value))[0] - axes.bbox.x0
    box = label.get_window_extent()
    if box.width < room and _is_crossed(axes, box, bandwidths, highest):
        label.xy = (left, ceiling.value)
        label.set(position=(-4, 0), va="bottom")
    box = label.get_window_extent()
    middle = (box.y0 + box.y1) / 2
    start, end = axes.transData.inverted().transform([(box.x0, middle), (box.x1, middle)]).tolist()
    return (start[0], start[1]), (end[0], end[1])


def _is_crossed(axes: Axes, box: BboxBase, bandwidths: Sequence[Ceiling], highest: float) -> bool:
    """Whether a bandwidth's roof, which the highest peak ends, goes through a box of pixels."""
    left, low, right, high = axes.transData.inverted().transform(box.get_points()).ravel().tolist()
    return low < highest and any(
        each.value * right > low and each.value * left < min(high, highest) for each in bandwidths
    )


def _ceiling_text(
    ceiling: Ceiling, unit: str, word: str = "", reached: Ceiling | None = None
) -> str:
    name = f"{ceiling.label} {word}".strip()
    text = f"{name}  {si_text(ceiling.value, unit)} ({ceiling.provenance})"
    if reached is None or (
        ceiling.provenance == "measured"
        and abs(reached.value / ceiling.value - 1) < SAME_VALUE_TOLERANCE
    ):
        return text
    number, its_unit = si_text(reached.value, unit).split(" ")
    same = si_text(ceiling.value, unit).endswith(f" {its_unit}")
    return f"{text}, {number if same else f'{number} {its_unit}'} {reached.provenance}"


def _draw_ridges(
    axes: Axes, peak: Ceiling, bandwidths: Sequence[Ceiling], heights: Sequence[float]
) -> None:
    """Drop a line from each ridge point, to a height where no other line crosses its label."""
    bottom, top = axes.get_ylim()
    decade_inches = axes_inches(axes)[1] / math.log10(top / bottom)
    up = 0.08
    for ceiling in bandwidths:
        ridge = peak.value / ceiling.value
        # The first ridge is labelled lowest: the lines to its right end above its label.
        for height in sorted(heights):
            if -SMALL_TEXT_HEIGHT_INCHES < up - height < 0.05:
                up = height + 0.05
        foot = bottom * 10 ** (up / decade_inches)
        up += LABEL_GAP_INCHES
        axes.plot(
            [ridge, ridge],
            [foot, peak.value],
            color=SECONDARY_INK,
            lw=0.8,
            ls=(0, (1, 2)),
            zorder=1,
        )
        axes.plot([ridge], [peak.value], "o", ms=5, color=INK, zorder=3)
        axes.annotate(
            f"{ceiling.label} ridge {sentence_number(ridge)} FLOP/B",
            xy=(ridge, foot),
            xytext=(4, 0),
            textcoords="offset points",
            va="bottom",
            fontsize=SMALL_POINTS,
            color=SECONDARY_INK,
            path_effects=text_halo(),
        )


def _slope_degrees(axes: Axes) -> float:
    """The angle at which a line of slope one decade a decade is seen."""
    width, height = axes_inches(axes)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    rise = height / math.log10(top / bottom)
    run = width / math.log10(right / left)
    return math.degrees(math.atan2(rise, run))
