"""The roofline itself: log-log axes, roofs with their labels, ridge points, kernels.

The axes follow from the ceilings alone, so that pictures of one device can be laid side by side.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from memlab.device.measurement import flop_by_pipe
from memlab.roofline.ceilings import MEMORY_LEVELS, by_key
from memlab.roofline.style import INK, MARKERS, PAPER, QUIET, SMALL_POINTS, fit
from memlab.roofline.units import printable, scaled, short

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.roofline.run import Ceiling
    from memlab.roofline.style import Entry

ROOFS = (*MEMORY_LEVELS, "fp32")
"""The ceilings that are always drawn; another peak is drawn when a run used its pipe."""

LABEL_GAP_INCHES = 0.2
"""Least distance between the base lines of two kernels' labels."""

LABEL_INCHES = 1.65
"""Room for a kernel's label right of the axes."""

REACHED: dict[str, Any] = {"color": INK, "lw": 1.0, "linestyle": (0, (4, 2)), "zorder": 2}
"""Matplotlib's looks of a measured ceiling."""

Limits = tuple[tuple[float, float], tuple[float, float]]


def limits(ceilings: Sequence[Ceiling], pipes: Collection[str] = ()) -> Limits:
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
    known = by_key(ceilings)
    peak = known["fp32"].value if "fp32" in known else 1e13
    ridges = [peak / known[level].value for level in MEMORY_LEVELS if level in known] or [10.0]
    highest = max([peak, *(each.value for each in _peaks(ceilings, pipes))])
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


def is_on_chart(entry: Entry, ceilings: Sequence[Ceiling]) -> bool:
    """Tell whether a run's performance lies within the axes; one without FLOPs never does."""
    low, high = limits(ceilings, _pipes([entry]))[1]
    return low <= entry.run.placement.flop_per_s <= high


def draw_chart(
    axes: Axes,
    entries: Sequence[Entry],
    ceilings: Sequence[Ceiling],
    measured: Sequence[Ceiling] = (),
) -> None:
    """Draw roofs, ridge points and kernels on empty axes whose size is final.

    What was measured of a roof is a dashed line beside it and a second figure in its label.
    """
    pipes = _pipes(entries)
    _prepare(axes, limits(ceilings, pipes))
    known, reached = by_key(ceilings), by_key(measured)
    bandwidths = [known[level] for level in MEMORY_LEVELS if level in known]
    bandwidths.sort(key=lambda ceiling: -ceiling.value)
    peak, others = known.get("fp32"), _peaks(ceilings, pipes)
    highest = max((each for each in (peak, *others) if each), key=lambda c: c.value, default=None)
    for index, ceiling in enumerate(bandwidths):
        below = _label_below(bandwidths, index)
        _bandwidth(axes, ceiling, highest, below, reached.get(ceiling.key))
    if peak:
        _peak(axes, peak, bandwidths, "solid", reached.get("fp32"))
        _ridges(axes, peak, bandwidths)
    for each in _merged(others):
        _peak(axes, each, bandwidths, "dashed", reached.get(each.key))
    _kernels(axes, [entry for entry in entries if is_on_chart(entry, ceilings)])


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
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


def _pipes(entries: Sequence[Entry]) -> set[str]:
    """The pipes that did the runs' FLOPs, by the key of their peak."""
    return {
        pipe
        for entry in entries
        for pipe, flop in flop_by_pipe(entry.run.measurement.counters).items()
        if flop
    }


def _peaks(ceilings: Sequence[Ceiling], pipes: Collection[str]) -> list[Ceiling]:
    """The compute peaks that are drawn besides FP32, since a run used their pipe."""
    return [
        each
        for each in ceilings
        if each.kind == "compute" and each.key in pipes and each.key not in ROOFS
    ]


def _merged(peaks: Sequence[Ceiling]) -> list[Ceiling]:
    """Make one roof of peaks that are equal, as those of FP16 and BF16 are, under both names."""
    alike: dict[float, list[Ceiling]] = {}
    for each in peaks:
        alike.setdefault(each.value, []).append(each)
    return [
        replace(same[0], label=" and ".join(each.label for each in same)) for same in alike.values()
    ]


def _prepare(axes: Axes, extents: Limits) -> None:
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
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_xlabel("Arithmetic intensity (FLOP/B)", labelpad=6)
    axes.set_ylabel("Performance (FLOP/s)", labelpad=6)
    axes.grid(visible=True, which="major", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _tick(value: float) -> str:
    number, _, prefix = scaled(value, "").partition(" ")
    return f"{float(number):g} {prefix}"


def _label_below(bandwidths: Sequence[Ceiling], index: int) -> bool:
    """Put the lowest roof's label under it, the highest's over it, others' where more room is."""
    if index in (0, len(bandwidths) - 1):
        return index > 0 or len(bandwidths) == 1
    over = bandwidths[index - 1].value / bandwidths[index].value
    under = bandwidths[index].value / bandwidths[index + 1].value
    return under > over


def _bandwidth(
    axes: Axes, ceiling: Ceiling, peak: Ceiling | None, below: bool, reached: Ceiling | None
) -> None:
    from matplotlib.transforms import ScaledTranslation

    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    start = max(left, bottom / ceiling.value)
    end = min(right, (peak.value if peak else top) / ceiling.value)
    axes.plot(
        [start, end], [start * ceiling.value, end * ceiling.value], color=INK, lw=1.8, zorder=2
    )
    if reached:
        first = max(left, bottom / reached.value)
        last = min(right, (peak.value if peak else top) / reached.value)
        axes.plot(
            [first, last],
            [first * reached.value, last * reached.value],
            **REACHED,
        )
    angle = _slope_degrees(axes)
    normal = math.radians(angle + (-90 if below else 90))
    along = math.radians(angle)

    def beside(points_along: float, points_off: float) -> tuple[float, float]:
        """From where the roof enters the axes, in points along it and off it."""
        return (
            points_along * math.cos(along) + points_off * math.cos(normal),
            points_along * math.sin(along) + points_off * math.sin(normal),
        )

    # The level's marker leads the label, upright: a turned square would be another level's.
    x_points, y_points = beside(16, 9)
    inches = _figure(axes).dpi_scale_trans
    shift = ScaledTranslation(x_points / 72, y_points / 72, inches)
    axes.plot(
        [start],
        [start * ceiling.value],
        marker=MARKERS[ceiling.key],
        ms=7,
        color=INK,
        ls="none",
        transform=axes.transData + shift,
        zorder=5,
    )
    axes.annotate(
        _roof_text(ceiling, "B/s", reached=reached),
        xy=(start, start * ceiling.value),
        xytext=beside(25, 4),
        textcoords="offset points",
        rotation=angle,
        rotation_mode="anchor",
        va="top" if below else "bottom",
        ha="left",
        color=INK,
        fontsize=SMALL_POINTS,
        zorder=7,  # a point may lie under a label, never over it
        path_effects=_halo(),
    )


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


def _kernels(axes: Axes, entries: Sequence[Entry]) -> None:
    for entry in entries:
        level_x = _intensities(entry)
        points = sorted(level_x.values())
        y = entry.run.placement.flop_per_s
        axes.plot(points, [y] * len(points), color=entry.color, lw=1.2, zorder=4)
        _gap_to_roof(axes, entry, level_x)
        for level, x in level_x.items():
            axes.plot(
                [x],
                [y],
                marker=MARKERS[level],
                zorder=6,
                gid=printable(f"{entry.label} {level}"),
                **entry.marker,
            )
    _kernel_labels(axes, entries)


def _gap_to_roof(axes: Axes, entry: Entry, level_x: dict[str, float]) -> None:
    """Dot the way up to the lowest roof: what is missing to 100 % of it."""
    placement = entry.run.placement
    x = level_x.get(placement.ceiling, max(level_x.values(), default=0.0))
    if x and placement.ceiling_flop_per_s > placement.flop_per_s:
        ends = [placement.flop_per_s, placement.ceiling_flop_per_s]
        axes.plot([x, x], ends, color=entry.color, lw=1.6, ls=":", zorder=4)


def _intensities(entry: Entry) -> dict[str, float]:
    """FLOP/B at each level that is drawn and where bytes move."""
    known = entry.run.placement.intensity_flop_per_byte
    return {level: x for level in MARKERS if (x := known.get(level))}


def _kernel_labels(axes: Axes, entries: Sequence[Entry]) -> None:
    """Name each kernel right of the axes, where no point is, with a leader to its last point."""
    height = axes_inches(axes)[1]
    low, high = (math.log10(limit) for limit in axes.get_ylim())
    ordered = sorted(entries, key=lambda entry: entry.run.placement.flop_per_s)
    heights = [
        height * (math.log10(entry.run.placement.flop_per_s) - low) / (high - low)
        for entry in ordered
    ]
    places = spread(heights, LABEL_GAP_INCHES, 0.1, height - 0.1)
    for entry, at, place in zip(ordered, heights, places, strict=True):
        last = max(_intensities(entry).values(), default=axes.get_xlim()[1])
        axes.plot(
            [_x_fraction(axes, last), 1.0, 1.025, 1.035],
            [at / height, at / height, place / height, place / height],
            transform=axes.transAxes,
            color=entry.color,
            lw=0.8,
            alpha=0.6,
            clip_on=False,
            zorder=1,
        )
        label = axes.text(1.042, place / height, entry.label, transform=axes.transAxes, va="center")
        fit(label, LABEL_INCHES)


def _x_fraction(axes: Axes, x: float) -> float:
    low, high = (math.log10(limit) for limit in axes.get_xlim())
    return min(1.0, max(0.0, (math.log10(x) - low) / (high - low)))


def axes_inches(axes: Axes) -> tuple[float, float]:
    """Give the width and height of axes in inches."""
    box = axes.get_position()
    width, height = _figure(axes).get_size_inches()
    return box.width * width, box.height * height


def _figure(axes: Axes) -> Figure:
    return cast("Figure", axes.get_figure(root=True))


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
