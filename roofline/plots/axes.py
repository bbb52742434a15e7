"""The roofline itself: log-log axes, and kernels under the roofs.

The axes follow from the ceilings alone, so that pictures of one device can be laid side by side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memlab.device.measurement import flop_by_pipe
from memlab.roofline.ceilings import MEMORY_LEVELS, ceilings_by_key
from memlab.roofline.plots.ceiling_lines import draw_ceilings, other_peaks
from memlab.roofline.plots.label_placement import (
    LABEL_GAP_INCHES,
    axes_inches,
    fit_name,
    point_inches,
    spread_positions,
)
from memlab.roofline.plots.style import MARKERS, SMALL_POINTS
from memlab.roofline.units import si_text
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes

    from memlab.roofline.plots.ceiling_lines import Line
    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Ceiling

LABEL_INCHES = 1.7
"""Room for a kernel's label right of the axes, up to the legend and the next panel's figures."""

AxisLimits = tuple[tuple[float, float], tuple[float, float]]


def axis_limits(ceilings: Sequence[Ceiling], pipes: Collection[str] = ()) -> AxisLimits:
    """Choose the axes in whole decades from the ceilings alone.

    In x two decades below the first ridge point and two beyond the last; in y four decades up to
    the one that holds the FP32 peak with room for its label, and on to that of the tensor cores
    where a run used them.

    Args:
        ceilings: The device's.
        pipes: Keys of the peaks of the pipes that the runs to be drawn used.

    Returns:
        `(least, most)` intensity in FLOP/B and `(least, most)` performance in FLOP/s.
    """
    known = ceilings_by_key(ceilings)
    peak = known["fp32"].value if "fp32" in known else 1e13
    ridges = [peak / known[level].value for level in MEMORY_LEVELS if level in known] or [10.0]
    highest = max([peak, *(each.value for each in other_peaks(ceilings, pipes))])
    return (
        (
            10.0 ** (math.floor(math.log10(min(ridges))) - 2),
            10.0 ** (math.ceil(math.log10(max(ridges))) + 2),
        ),
        (10.0 ** (_decade_above(peak) - 4), 10.0 ** _decade_above(highest)),
    )


def _decade_above(flop_per_s: float) -> int:
    """The power of ten that leaves room for a label between a peak and itself."""
    return math.ceil(math.log10(flop_per_s) + 0.15)


def is_on_chart(entry: RunStyle, ceilings: Sequence[Ceiling]) -> bool:
    """Tell whether a run's performance lies within the axes; one without FLOPs never does."""
    low, high = axis_limits(ceilings, _used_pipes([entry]))[1]
    return low <= entry.run.placement.flop_per_s <= high


def draw_chart(
    axes: Axes,
    entries: Sequence[RunStyle],
    ceilings: Sequence[Ceiling],
    measured: Sequence[Ceiling] = (),
) -> None:
    """Draw roofs, ridge points and kernels on empty axes whose size is final.

    What was measured of a roof is a dashed line beside it and a second figure in its label.
    """
    pipes = _used_pipes(entries)
    _set_up_axes(axes, axis_limits(ceilings, pipes))
    drawn = [entry for entry in entries if is_on_chart(entry, ceilings)]
    points = [
        (x, entry.run.placement.flop_per_s) for entry in drawn for x in _intensities(entry).values()
    ]
    gaps = [gap for entry in drawn if (gap := _gap_to_ceiling(entry))]
    draw_ceilings(axes, ceilings, measured, pipes, points, gaps)
    _draw_kernels(axes, drawn)


def _used_pipes(entries: Sequence[RunStyle]) -> set[str]:
    """The pipes that did the runs' FLOPs, by the key of their peak."""
    return {
        pipe
        for entry in entries
        for pipe, flop in flop_by_pipe(entry.run.measurement.counters).items()
        if flop
    }


def _set_up_axes(axes: Axes, extents: AxisLimits) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    x_limits, y_limits = extents
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*x_limits)
    axes.set_ylim(*y_limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10.0, numticks=12))
        axis.set_minor_locator(LogLocator(base=10.0, subs=range(2, 10), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _flop_rate_tick_text(value)))
    axes.set_xlabel("Arithmetic intensity (FLOP/B)", labelpad=6)
    axes.set_ylabel("Performance (FLOP/s)", labelpad=6)
    axes.grid(visible=True, which="major", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _flop_rate_tick_text(value: float) -> str:
    number, _, prefix = si_text(value, "").partition(" ")
    return f"{float(number):g} {prefix}"


def _draw_kernels(axes: Axes, entries: Sequence[RunStyle]) -> None:
    for entry in entries:
        level_x = _intensities(entry)
        points = sorted(level_x.values())
        y = entry.run.placement.flop_per_s
        axes.plot(points, [y] * len(points), lw=1.2, zorder=4, **entry.line)
        if gap := _gap_to_ceiling(entry):
            axes.plot(*zip(*gap, strict=True), color=entry.color, lw=1.6, ls=":", zorder=4)
        for level, x in level_x.items():
            axes.plot([x], [y], marker=MARKERS[level], zorder=6, **entry.marker_gap)
        for level, x in level_x.items():
            axes.plot(
                [x],
                [y],
                marker=MARKERS[level],
                zorder=6,
                gid=printable(f"{entry.label} {level}"),
                **entry.marker,
            )
    _draw_kernel_labels(axes, entries)


def _gap_to_ceiling(entry: RunStyle) -> Line | None:
    """Give the way up to the lowest roof, if any: what is missing to 100 % of it."""
    placement, level_x = entry.run.placement, _intensities(entry)
    x = level_x.get(placement.ceiling, max(level_x.values(), default=0.0))
    if not x or placement.ceiling_flop_per_s <= placement.flop_per_s:
        return None
    return (x, placement.flop_per_s), (x, placement.ceiling_flop_per_s)


def _intensities(entry: RunStyle) -> dict[str, float]:
    """FLOP/B at each level that is drawn and where bytes move."""
    known = entry.run.placement.intensity_flop_per_byte
    return {level: x for level in MARKERS if (x := known.get(level))}


def _draw_kernel_labels(axes: Axes, entries: Sequence[RunStyle]) -> None:
    """Name each kernel right of the axes, where no point is, with a leader to its last point."""
    width, height = axes_inches(axes)
    ordered = sorted(entries, key=lambda entry: entry.run.placement.flop_per_s)
    ends = [
        point_inches(
            axes,
            max(_intensities(entry).values(), default=axes.get_xlim()[1]),
            entry.run.placement.flop_per_s,
        )
        for entry in ordered
    ]
    places = spread_positions([at for _, at in ends], LABEL_GAP_INCHES, 0.1, height - 0.1)
    for entry, (last, at), place in zip(ordered, ends, places, strict=True):
        axes.plot(
            [min(max(last / width, 0.0), 1.0), 1.0, 1.025, 1.035],
            [at / height, at / height, place / height, place / height],
            transform=axes.transAxes,
            lw=0.8,
            alpha=0.6,
            clip_on=False,
            zorder=1,
            **entry.line,
        )
        label = axes.text(
            1.042,
            place / height,
            "",
            transform=axes.transAxes,
            va="center",
            fontsize=SMALL_POINTS,
        )
        fit_name(label, entry.name, entry.rest, LABEL_INCHES)
