"""The picture of a comparison: both runs under the roof, an arrow from A to B at each level."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.roofline.ceilings import MEMORY_LEVELS, ceiling_label, ceilings_by_key
from memlab.roofline.comparison.wording import change_text
from memlab.roofline.placement import bytes_moved
from memlab.roofline.plots.axes import draw_points, level_intensities, set_up_axes, used_pipes
from memlab.roofline.plots.ceiling_lines import draw_ceilings, other_peaks
from memlab.roofline.plots.figure import (
    NOTE_INCHES,
    add_axes,
    new_figure,
    rate_tick_text,
    write_notes,
)
from memlab.roofline.plots.label_placement import label_line_ends
from memlab.roofline.plots.legend import draw_legend, draw_table, table_inches
from memlab.roofline.plots.style import (
    HAIRLINE,
    INK,
    MARKERS,
    PALETTE,
    SECONDARY_INK,
    SMALL_POINTS,
    run_styles,
)
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.roofline.comparison.records import Comparison, PairComparison
    from memlab.roofline.plots.axes import AxisLimits
    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Ceiling

MAX_PAIRS = 6
"""More pairs cannot be told apart; the first are drawn, the others counted."""

PALE_SHARE = 0.5
"""How far the colour of A is lightened towards white."""

CHART_TOP_INCHES, CHART_HEIGHT_INCHES = 0.95, 4.7
TABLE_TOP_INCHES = CHART_TOP_INCHES + CHART_HEIGHT_INCHES + 0.75
FOOT_INCHES = 0.3
LABEL_INCHES = 1.9
PANEL_LEVELS = ("requested", "l1", "l2", "dram")
ARROW_CLEARANCE_POINTS = 6.0
"""Where an arrow leaves and reaches a marker, from the marker's centre."""

NOTE = (
    "Arrows lead from A (pale) to B at each level: up is faster, right is less traffic for the "
    "same FLOPs. Read each point under the ceiling of its own level."
)

BANDWIDTH_NOTE = (
    "The runs compute no FLOPs, so they are drawn by the bandwidth that they reach at each level. "
    "Arrows lead from A (pale) to B; a bar is the level's ceiling."
)


def draw_comparison(
    comparison: Comparison,
    ceilings: Sequence[Ceiling],
    device_name: str,
    other: tuple[Sequence[Ceiling], str] | None = None,
) -> Figure:
    """Draw the pairs of a comparison under the ceilings of B's device.

    Args:
        comparison: The comparison.
        ceilings: The ceilings of the device of B.
        device_name: Its name.
        other: The ceilings and the name of A's device where it is another one; dashed lines.

    Returns:
        A figure of 14 inches by about 8.
    """
    pairs = comparison.pairs[:MAX_PAIRS]
    styles = [style for rank, pair in enumerate(pairs) for style in _styles(pair, rank)]
    drawn = [style for style in styles if style.point.per_s]
    notes = _notes(comparison, styles, drawn, other)
    height = TABLE_TOP_INCHES + table_inches(len(styles)) + FOOT_INCHES + NOTE_INCHES * len(notes)
    title = f"{pairs[0].call.capitalize()}: A to B" if len(pairs) == 1 else f"{len(pairs)} pairs"
    with new_figure(height, f"{title} on {device_name}", _summary(pairs)) as figure:
        if drawn:
            chart = add_axes(figure, 0.95, CHART_TOP_INCHES, 7.3, CHART_HEIGHT_INCHES)
            _draw_chart(chart, drawn, ceilings, other)
        else:  # names of levels stand left of the axes
            chart = add_axes(figure, 1.45, CHART_TOP_INCHES, 6.8, CHART_HEIGHT_INCHES)
            _draw_bandwidths(chart, styles, ceilings)
        panel = add_axes(figure, 11.25, CHART_TOP_INCHES + 0.25, 2.4, 2.5)
        _draw_traffic(panel, pairs[0], styles[:2])
        wrong = any(style.is_wrong for style in styles)
        draw_legend(figure, 10.4, CHART_TOP_INCHES + 3.5, wrong=wrong)
        draw_table(figure, styles, TABLE_TOP_INCHES)
        write_notes(figure, notes)
    return figure


def _styles(pair: PairComparison, rank: int) -> list[RunStyle]:
    """Give both runs one colour, A's paler."""
    color = PALETTE[rank % len(PALETTE)]
    first, second = run_styles([pair.a, pair.b])
    return [
        replace(first, color=_pale(color), line_style="solid", name=f"A {first.name}"),
        replace(second, color=color, line_style="solid", name=f"B {second.name}"),
    ]


def _pale(color: str) -> str:
    from matplotlib.colors import to_hex, to_rgb

    mixed = (part + (1 - part) * PALE_SHARE for part in to_rgb(color))
    return to_hex(tuple(mixed))  # type: ignore[arg-type]


def _summary(pairs: Sequence[PairComparison]) -> str:
    """The times of a single pair, at the right of the title."""
    if len(pairs) != 1:
        return ""
    time = pairs[0].time
    times = f"{si_text(time.a_s, 's')} to {si_text(time.b_s, 's')}"
    change = change_text(time.relative).replace("none", "equal")
    return f"time {times}, {change} ({time.provenance})"


def _draw_chart(
    axes: Axes,
    styles: Sequence[RunStyle],
    ceilings: Sequence[Ceiling],
    other: tuple[Sequence[Ceiling], str] | None,
) -> None:
    pipes = used_pipes(styles)
    set_up_axes(axes, _limits(styles, (*ceilings, *(other[0] if other else ())), pipes))
    if other is not None:
        _draw_other_ceilings(axes, other[0])
    for style in styles:
        draw_points(axes, style)
    for first, second in zip(styles[::2], styles[1::2], strict=False):
        _draw_arrows(axes, first, second)
    label_line_ends(
        axes,
        [
            (max(level_intensities(style).values(), default=1.0), style.point.per_s)
            for style in styles
        ],
        [(style.name, style.suffix) for style in styles],
        [style.line for style in styles],
        LABEL_INCHES,
    )
    draw_ceilings(axes, ceilings, (), pipes)


def _limits(styles: Sequence[RunStyle], ceilings: Sequence[Ceiling], pipes: set[str]) -> AxisLimits:
    """Choose limits that hold the runs and all ridge points, no more: changes are small."""
    # With the ceilings of two devices, those that span most.
    values = {
        key: [ceiling.value for ceiling in ceilings if ceiling.key == key]
        for key in ("fp32", *MEMORY_LEVELS)
    }
    peak = max(values["fp32"], default=1e13)
    highest = max([peak, *(ceiling.value for ceiling in other_peaks(ceilings, pipes))])
    ridges = [peak / value for level in MEMORY_LEVELS for value in values[level]] or [10.0]
    rates = [style.point.per_s for style in styles] or [peak / 10]
    levels = [value for style in styles for value in level_intensities(style).values()]
    x = min([*ridges, *levels]) / 2.5, max([*ridges, *levels]) * 2.5
    return x, (min([*rates, peak / 10]) / 2.5, highest * 1.9)


def _draw_arrows(axes: Axes, first: RunStyle, second: RunStyle) -> None:
    """Draw an arrow at each level where bytes move in both runs."""
    start, end = level_intensities(first), level_intensities(second)
    rates = first.point.per_s, second.point.per_s
    for level in MARKERS:
        if level in start and level in end:
            points = (start[level], rates[0]), (end[level], rates[1])
            _draw_arrow(axes, *points, second.color)


def _draw_bandwidths(axes: Axes, styles: Sequence[RunStyle], ceilings: Sequence[Ceiling]) -> None:
    """Draw runs without FLOPs by their bandwidth at each level, with its ceiling."""
    known = ceilings_by_key(ceilings)
    levels = [level for level in MEMORY_LEVELS if level in known]
    rates = [
        {level: moved / style.run.measurement.time.median_s for level, moved in each.items()}
        for style in styles
        for each in (bytes_moved(style.run.measurement),)
    ]
    values = [rate[level] for rate in rates for level in levels if rate[level]]
    highest = max(known[level].value for level in levels) if levels else 1e12
    axes.set(xscale="log", xlim=(min([*values, highest / 10]) / 2, highest * 2))
    axes.set_ylim(len(levels) - 0.5, -0.5)
    for row, level in enumerate(levels):
        limit = known[level].value
        axes.plot([limit, limit], [row - 0.3, row + 0.3], color=INK, lw=2.2, zorder=2)
        label = f"{known[level].label}  {si_text(limit, 'B/s')} ({known[level].provenance})"
        axes.text(limit, row - 0.36, label, ha="right", fontsize=SMALL_POINTS, color=INK)
        for first, second, a, b in zip(
            styles[::2], styles[1::2], rates[::2], rates[1::2], strict=True
        ):
            _draw_arrow(axes, (a[level], row), (b[level], row), second.color)
            for style, rate in ((first, a), (second, b)):
                axes.plot([rate[level]], [row], marker=MARKERS[level], zorder=6, **style.marker)
    axes.set_yticks(range(len(levels)), [ceiling_label(level) for level in levels])
    axes.xaxis.set_major_formatter(lambda value, _: rate_tick_text(value))
    axes.set_xlabel("Bandwidth (B/s)", labelpad=6)
    axes.grid(visible=True, which="major", axis="x", color="#EEEEEE", linewidth=0.8)


def _draw_arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str
) -> None:
    """Draw an arrow between two markers, unless they coincide or there is none."""
    if not min(start[0], end[0]) or math.dist(*axes.transData.transform((start, end))) < 2:
        return
    # The shaft is a line of its own, which labels keep clear of.
    axes.plot(*zip(start, end, strict=True), color=color, lw=1.8, zorder=4)
    axes.annotate(
        "",
        xytext=start,
        xy=end,
        zorder=5,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.22,head_length=0.42",
            "color": color,
            "linewidth": 1.8,
            "shrinkA": ARROW_CLEARANCE_POINTS,
            "shrinkB": ARROW_CLEARANCE_POINTS,
            "mutation_scale": 14,
        },
    )


def _draw_other_ceilings(axes: Axes, ceilings: Sequence[Ceiling]) -> None:
    """Draw the ceilings of A's device as thin dashed lines."""
    known = ceilings_by_key(ceilings)
    (left, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    looks: dict[str, Any] = {"color": SECONDARY_INK, "lw": 1.0, "ls": (0, (5, 3)), "zorder": 1.5}
    peak = known["fp32"].value if "fp32" in known else math.inf
    fastest = 0.0
    for level in MEMORY_LEVELS:
        if level in known:
            rate = known[level].value
            fastest = max(fastest, rate)
            x = max(left, bottom / rate), min(right, peak / rate)
            if x[0] < x[1]:
                axes.plot(x, [x[0] * rate, x[1] * rate], **looks)
    if math.isfinite(peak) and fastest:
        axes.plot([max(left, peak / fastest), right], [peak, peak], **looks)


def _draw_traffic(axes: Axes, pair: PairComparison, styles: Sequence[RunStyle]) -> None:
    """Draw the bytes that each level moves, A above B, with the change behind."""
    moved = [bytes_moved(run.measurement) for run in (pair.a, pair.b)]
    largest = max([1, *(side[level] for side in moved for level in PANEL_LEVELS)])
    for row, level in enumerate(PANEL_LEVELS):
        values = [side[level] for side in moved]
        for value, style, shift in zip(values, styles, (-0.18, 0.18), strict=True):
            axes.barh(row + shift, value, 0.32, color=style.color, zorder=2)
        change = (values[1] - values[0]) / values[0] if values[0] else None
        text = "from none" if change is None and values[1] else change_text(change or 0.0)
        at = max(values) + 0.03 * largest
        shown = text.replace("none", "equal") if any(values) else "none"
        axes.text(at, row, shown, va="center", fontsize=SMALL_POINTS, color=INK)
    axes.set_title("Bytes moved, A above B", pad=8)
    axes.set_yticks(range(len(PANEL_LEVELS)), [ceiling_label(level) for level in PANEL_LEVELS])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.32 * largest)
    axes.set_xticks([0, largest], ["0", si_text(largest, "B")])
    axes.tick_params(length=0, labelsize=SMALL_POINTS)
    axes.spines["left"].set_color(HAIRLINE)
    axes.spines["bottom"].set_color(HAIRLINE)


def _notes(
    comparison: Comparison,
    styles: Sequence[RunStyle],
    drawn: Sequence[RunStyle],
    other: tuple[Sequence[Ceiling], str] | None,
) -> list[str]:
    notes = [NOTE if drawn else BANDWIDTH_NOTE]
    if other is not None:
        notes.append(f"Dashed: the ceilings of {other[1]}, the device of A.")
    missing = [style.label for style in styles if style not in drawn]
    if missing and drawn:
        notes.append(f"Not on the chart, since they compute no FLOPs: {', '.join(missing)}.")
    if len(comparison.pairs) > MAX_PAIRS:
        notes.append(f"{len(comparison.pairs) - MAX_PAIRS} more pairs are not drawn.")
    obstacles = [reason for pair in comparison.pairs for reason in pair.obstacles]
    if obstacles:
        notes.append(f"Not comparable: {obstacles[0]}.")
    return notes
