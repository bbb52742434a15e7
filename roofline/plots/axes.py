"""The roofline chart: log-log axes, with kernels under the ceilings.

The axes follow from the ceilings alone, so that pictures of one device can be compared.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memlab.device.measurement import flop_by_pipe
from memlab.device.properties import INTEGER_KINDS
from memlab.roofline.ceilings import MEMORY_LEVELS, ceilings_by_key
from memlab.roofline.plots.ceiling_lines import draw_ceilings, other_peaks
from memlab.roofline.plots.figure import rate_tick_text
from memlab.roofline.plots.label_placement import label_line_ends
from memlab.roofline.plots.style import MARKERS, cross_style
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes

    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Ceiling

LABEL_INCHES = 1.75
"""Greatest width of a kernel's label right of the axes, up to the legend."""

AxisLimits = tuple[tuple[float, float], tuple[float, float]]


def axis_limits(ceilings: Sequence[Ceiling], pipes: Collection[str] = ()) -> AxisLimits:
    """Choose the limits of the axes, whole decades, from the ceilings alone.

    In x from two decades below the first ridge point to two beyond the last; in y four decades up
    to the one that holds the FP32 peak with its label, or the peak of a tensor pipe that runs used.

    Args:
        ceilings: The device's ceilings.
        pipes: Keys of the peaks of the pipes that the runs used.

    Returns:
        `(least, greatest)` intensity in FLOP/B and `(least, greatest)` performance in FLOP/s.
    """
    known = ceilings_by_key(ceilings)
    peak = known["fp32"].value if "fp32" in known else 1e13
    ridges = [peak / known[level].value for level in MEMORY_LEVELS if level in known] or [10.0]
    highest = max([peak, *(ceiling.value for ceiling in other_peaks(ceilings, pipes))])
    first, last = math.floor(math.log10(min(ridges))), math.ceil(math.log10(max(ridges)))
    return (
        (10.0 ** (first - 2), 10.0 ** (last + 2)),
        (10.0 ** (_decade_above(peak) - 4), 10.0 ** _decade_above(highest)),
    )


def _decade_above(flop_per_s: float) -> int:
    """The least power of ten that leaves room for a peak's label below it."""
    return math.ceil(math.log10(flop_per_s) + 0.15)


def is_on_chart(style: RunStyle, ceilings: Sequence[Ceiling]) -> bool:
    """Return whether a run's performance lies within the axes.

    Without FLOPs it does only under the roof of an integer pipe.
    """
    low, high = axis_limits(ceilings, used_pipes([style]))[1]
    return low <= style.point.per_s <= high


def draw_chart(
    axes: Axes,
    styles: Sequence[RunStyle],
    ceilings: Sequence[Ceiling],
    measured: Sequence[Ceiling] = (),
) -> None:
    """Draw ceilings, ridge points and kernels on empty axes with final size.

    Args:
        axes: Where to draw.
        styles: The runs.
        ceilings: The device's ceilings.
        measured: The rates that micro-benchmarks reached: a dashed line next to the ceiling and a
            second figure in its label.
    """
    pipes = used_pipes(styles)
    set_up_axes(axes, axis_limits(ceilings, pipes))
    shown = [style for style in styles if is_on_chart(style, ceilings)]
    for style in shown:
        _draw_kernel(axes, style)
    if any(style.point.operation == "OP" for style in shown):
        axes.set_xlabel("Arithmetic intensity (FLOP/B; of integers OP/B)", labelpad=6)
        axes.set_ylabel("Performance (FLOP/s; of integers OP/s)", labelpad=6)
    right = axes.get_xlim()[1]
    label_line_ends(
        axes,
        [
            (max(level_intensities(style).values(), default=right), style.point.per_s)
            for style in shown
        ],
        [(style.name, style.suffix + _unit_text(style)) for style in shown],
        [style.line for style in shown],
        LABEL_INCHES,
    )
    draw_ceilings(axes, ceilings, measured, pipes)


def used_pipes(styles: Sequence[RunStyle]) -> set[str]:
    """The pipes that did the runs' work, by the key of their peak."""
    integers = {style.run.placement.ceiling for style in styles}.intersection(INTEGER_KINDS)
    return integers | {
        pipe
        for style in styles
        for pipe, flop in flop_by_pipe(style.run.measurement.counters).items()
        if flop
    }


def set_up_axes(axes: Axes, limits: AxisLimits) -> None:
    """Give axes their scales, limits, ticks and labels."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10.0, numticks=12))
        axis.set_minor_locator(LogLocator(base=10.0, subs=range(2, 10), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.yaxis.set_major_formatter(lambda value, _: rate_tick_text(value))
    axes.set_xlabel("Arithmetic intensity (FLOP/B)", labelpad=6)
    axes.set_ylabel("Performance (FLOP/s)", labelpad=6)
    axes.grid(visible=True, which="major", color="#EEEEEE", linewidth=0.8)


def _draw_kernel(axes: Axes, style: RunStyle) -> None:
    """Draw a point per memory level, and a dotted line up to the lowest ceiling."""
    level_x, placement, point = level_intensities(style), style.run.placement, style.point
    y = point.per_s
    axes.plot(sorted(level_x.values()), [y] * len(level_x), lw=1.2, zorder=4, **style.line)
    x = level_x.get(placement.ceiling, max(level_x.values(), default=0.0))
    if x and point.ceiling_per_s > y:
        gap = [y, point.ceiling_per_s]
        axes.plot([x, x], gap, color=style.color, lw=1.6, ls=":", zorder=4)
    draw_points(axes, style)


def draw_points(axes: Axes, style: RunStyle) -> None:
    """Draw a point per memory level at the run's performance."""
    level_x, y = level_intensities(style), style.point.per_s
    for level, x in level_x.items():
        axes.plot([x], [y], marker=MARKERS[level], zorder=6, **style.marker)
    for level, x in level_x.items():  # again, since the gap around one hides its neighbour
        looks = style.marker | {"path_effects": None, "gid": printable(f"{style.label} {level}")}
        axes.plot([x], [y], marker=MARKERS[level], zorder=6, **looks)
    if style.is_wrong:
        points = [*level_x.values()]
        axes.plot(points, [y] * len(points), zorder=6.5, **cross_style())


def level_intensities(style: RunStyle) -> dict[str, float]:
    """FLOP/B, of integers OP/B, at every drawn level where bytes move."""
    known = style.point.intensity
    return {level: x for level in MARKERS if (x := known.get(level))}


def _unit_text(style: RunStyle) -> str:
    """What tells a run that is drawn by its integer operations."""
    return " · OP/s" if style.point.operation == "OP" else ""
