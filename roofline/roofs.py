"""Roofs with their labels, and ridge points."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.roofline.ceilings import MEMORY_LEVELS, by_key
from memlab.roofline.layout import LABEL_GAP_INCHES, axes_inches, figure_of, place_inches
from memlab.roofline.style import INK, MARKERS, PAPER, QUIET, SMALL_POINTS
from memlab.roofline.units import scaled, short

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes

    from memlab.roofline.run import Ceiling

ROOFS = (*MEMORY_LEVELS, "fp32")
"""The ceilings that are always drawn; another peak is drawn when a run used its pipe."""

LABEL_STEP_INCHES = 0.02
"""Distance between the places along a roof that are tried for its label."""

MARKER_INCHES = 0.13
"""From the middle of the marker before a roof's label to the text."""

POINT_INCHES = 0.07
"""Room that a kernel's point takes around its centre."""

REACHED: dict[str, Any] = {"color": INK, "lw": 1.0, "linestyle": (0, (4, 2)), "zorder": 2}
"""Matplotlib's looks of a measured ceiling."""


def other_peaks(ceilings: Sequence[Ceiling], pipes: Collection[str]) -> list[Ceiling]:
    """Give the compute peaks that are drawn besides FP32's, since a run used their pipe."""
    return [
        each
        for each in ceilings
        if each.kind == "compute" and each.key in pipes and each.key not in ROOFS
    ]


def draw_roofs(
    axes: Axes,
    ceilings: Sequence[Ceiling],
    measured: Sequence[Ceiling],
    pipes: Collection[str],
    points: Sequence[tuple[float, float]],
) -> None:
    """Draw a device's roofs and ridge points on log-log axes whose size and limits are final.

    Args:
        axes: Where to draw.
        ceilings: The device's.
        measured: What was reached of them: a dashed line each and a second figure in its label.
        pipes: Keys of the peaks of the pipes that the runs used.
        points: What the labels should leave free, in FLOP/B and FLOP/s.
    """
    known, reached = by_key(ceilings), by_key(measured)
    bandwidths = [known[level] for level in MEMORY_LEVELS if level in known]
    bandwidths.sort(key=lambda ceiling: -ceiling.value)
    peak, others = known.get("fp32"), other_peaks(ceilings, pipes)
    highest = max((each.value for each in (peak, *others) if each), default=axes.get_ylim()[1])
    for index, ceiling in enumerate(bandwidths):
        below = _label_below(bandwidths, index)
        _bandwidth(axes, ceiling, highest, reached.get(ceiling.key))
        _bandwidth_label(axes, ceiling, highest, reached.get(ceiling.key), below, points)
    if peak:
        _peak(axes, peak, bandwidths, "solid", reached.get("fp32"))
        _ridges(axes, peak, bandwidths)
    for each in _merged(others):
        _peak(axes, each, bandwidths, "dashed", reached.get(each.key))


def _merged(peaks: Sequence[Ceiling]) -> list[Ceiling]:
    """Make one roof of peaks that are equal, as those of FP16 and BF16 are, under both names."""
    alike: dict[float, list[Ceiling]] = {}
    for each in peaks:
        alike.setdefault(each.value, []).append(each)
    return [
        replace(same[0], label=" and ".join(each.label for each in same)) for same in alike.values()
    ]


def _label_below(bandwidths: Sequence[Ceiling], index: int) -> bool:
    """Put the lowest roof's label under it, the highest's over it, others' where more room is."""
    if index in (0, len(bandwidths) - 1):
        return index > 0 or len(bandwidths) == 1
    over = bandwidths[index - 1].value / bandwidths[index].value
    under = bandwidths[index].value / bandwidths[index + 1].value
    return under > over


def _bandwidth(axes: Axes, ceiling: Ceiling, highest: float, reached: Ceiling | None) -> None:
    for each, looks in ((ceiling, {"color": INK, "lw": 1.8, "zorder": 2}), (reached, REACHED)):
        if each:
            axes.plot(*zip(*_ends(axes, each, highest), strict=True), **looks)


def _ends(axes: Axes, ceiling: Ceiling, highest: float) -> list[tuple[float, float]]:
    """Where a bandwidth's roof enters the axes and where the highest peak ends it."""
    (left, right), bottom = axes.get_xlim(), axes.get_ylim()[0]
    limits = max(left, bottom / ceiling.value), min(right, highest / ceiling.value)
    return [(x, x * ceiling.value) for x in limits]


def _bandwidth_label(
    axes: Axes,
    ceiling: Ceiling,
    highest: float,
    reached: Ceiling | None,
    below: bool,
    points: Sequence[tuple[float, float]],
) -> None:
    """Write a roof's label along it, led by its level's marker, where it covers fewest points."""
    from matplotlib.transforms import Affine2D

    width, height = axes_inches(axes)
    angle = _slope_degrees(axes)
    entrance, end = (place_inches(axes, *each) for each in _ends(axes, ceiling, highest))
    # The roof's own frame: inches along it from where it enters the axes, and off it.
    roof = Affine2D().scale(1, -1 if below else 1).rotate_deg(angle).translate(*entrance)
    frame = roof + Affine2D().scale(1 / width, 1 / height) + axes.transAxes

    label = axes.text(
        0,
        0,
        _roof_text(ceiling, "B/s", reached=reached),
        va="top" if below else "bottom",
        transform=frame,
        rotation_mode="anchor",
        fontsize=SMALL_POINTS,
        zorder=7,  # a point may lie under a label, never over it
        path_effects=_halo(),
    )
    box, dots_per_inch = label.get_window_extent(), figure_of(axes).dpi
    shape = MARKER_INCHES + box.width / dots_per_inch, box.height / dots_per_inch
    turned = [
        tuple(roof.inverted().transform(place_inches(axes, *point)).tolist()) for point in points
    ]
    start = _freest(0.22, math.dist(entrance, end) - shape[0], shape, turned)
    label.set(position=(start + MARKER_INCHES, 0.055), rotation=angle)
    # Upright: a turned square would be another level's marker.
    axes.plot(
        [start],
        [0.125],
        marker=MARKERS[ceiling.key],
        ms=7,
        color=INK,
        ls="none",
        transform=frame,
        zorder=7,
    )


def _freest(
    first: float, last: float, shape: tuple[float, float], points: Sequence[tuple[float, float]]
) -> float:
    """Find the first start along a roof at which a label covers the fewest points.

    Args:
        first: Least start along the roof in inches.
        last: Greatest.
        shape: The label's length along the roof and reach off it, in inches.
        points: Their places along the roof and off it to the label's side, in inches.
    """
    near = [along for along, off in points if -POINT_INCHES < off < shape[1] + POINT_INCHES]

    def covered(start: float) -> int:
        end = start + shape[0] + POINT_INCHES
        return sum(start - POINT_INCHES < along < end for along in near)

    steps = max(0, int((last - first) / LABEL_STEP_INCHES))
    return min((first + step * LABEL_STEP_INCHES for step in range(steps + 1)), key=covered)


def _peak(
    axes: Axes,
    ceiling: Ceiling,
    bandwidths: Sequence[Ceiling],
    style: str,
    reached: Ceiling | None,
) -> None:
    left, right = axes.get_xlim()
    if bandwidths:
        left = max(left, ceiling.value / bandwidths[0].value)
    axes.plot([left, right], [ceiling.value] * 2, color=INK, lw=1.8, linestyle=style, zorder=2)
    if reached:
        axes.plot([left, right], [reached.value] * 2, **REACHED)
    axes.annotate(
        _roof_text(ceiling, "FLOP/s", "peak", reached),
        xy=(right, ceiling.value),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=SMALL_POINTS,
        zorder=7,
        path_effects=_halo(),
    )


def _roof_text(ceiling: Ceiling, unit: str, word: str = "", reached: Ceiling | None = None) -> str:
    name = f"{ceiling.label} {word}".strip()
    text = f"{name}  {scaled(ceiling.value, unit)} ({ceiling.provenance})"
    if reached is None:
        return text
    number, its_unit = scaled(reached.value, unit).split(" ")
    same = scaled(ceiling.value, unit).endswith(f" {its_unit}")
    return f"{text}, {number if same else f'{number} {its_unit}'} {reached.provenance}"


def _ridges(axes: Axes, peak: Ceiling, bandwidths: Sequence[Ceiling]) -> None:
    """Drop a line from each ridge point, to a height where no other line crosses its label."""
    bottom, top = axes.get_ylim()
    decade_inches = axes_inches(axes)[1] / math.log10(top / bottom)
    for rank, ceiling in enumerate(bandwidths):
        ridge = peak.value / ceiling.value
        # The first ridge is labelled lowest: the lines to its right end above its label.
        foot = bottom * 10 ** ((0.08 + LABEL_GAP_INCHES * rank) / decade_inches)
        axes.plot([ridge, ridge], [foot, peak.value], color=QUIET, lw=0.8, ls=(0, (1, 2)), zorder=1)
        axes.plot([ridge], [peak.value], "o", ms=5, color=INK, zorder=3)
        axes.annotate(
            f"{ceiling.label} ridge {short(ridge)} FLOP/B",
            xy=(ridge, foot),
            xytext=(4, 0),
            textcoords="offset points",
            va="bottom",
            fontsize=SMALL_POINTS,
            color=QUIET,
            path_effects=_halo(),
        )


def _slope_degrees(axes: Axes) -> float:
    """The angle at which a line of slope one decade a decade is seen."""
    width, height = axes_inches(axes)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    rise = height / math.log10(top / bottom)
    run = width / math.log10(right / left)
    return math.degrees(math.atan2(rise, run))


def _halo() -> list[object]:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground=PAPER)]
