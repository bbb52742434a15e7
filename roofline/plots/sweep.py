"""The picture of a sweep: lines over one number, heat maps over two, else the roofline of all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.kernels.user.expressions import SUFFIXES
from memlab.roofline.plots.figure import (
    FULL_WIDTH_INCHES,
    LEFT_INCHES,
    add_axes,
    new_figure,
    write_notes,
)
from memlab.roofline.plots.label_placement import fit_text
from memlab.roofline.plots.style import (
    BACKGROUND,
    HAIRLINE,
    LINE_STYLES,
    PALETTE,
    SECONDARY_INK,
    SMALL_POINTS,
)
from memlab.roofline.units import si_text
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.roofline.sweep.records import Sweep, SweepRow
    from memlab.roofline.sweep.space import Axis, Value

MAX_SERIES = len(PALETTE) * len(LINE_STYLES)
"""The most lines that can be told apart."""
BARS_WIDTH = 0.7
"""The width of the bars at one word, relative to the distance of two words."""
MAX_PANELS = 6
"""The most small multiples on one picture."""
MAX_TICKS = 12
"""The most labels at an axis with a place for each value."""
LEAST_SUFFIXED = 1 << 16
"""Shorter numbers are easier to read without a suffix."""
CHARACTER_INCHES = 0.095
"""The width of a digit at an axis."""
LEAST_SPAN = 1.25
"""The least ratio of the figures at the ends of the colours."""
LEAST_CELL_INCHES = 0.62
"""The least width of a cell with a figure."""

CHART_TOP_INCHES, CHART_HEIGHT_INCHES = 1.0, 5.2
PANEL_HEIGHT_INCHES = 3.6
PANEL_GAP_INCHES = 1.15


def draw_sweep(sweep: Sweep) -> Figure:
    """Draw a sweep.

    Args:
        sweep: With at least one point that is done.

    Returns:
        The chart over its axes; without one, the best runs under the roofline of the best one's
        device.
    """
    return draw_axes(sweep) or _draw_roofline(sweep)


def draw_axes(sweep: Sweep) -> Figure | None:
    """Draw a sweep over its axes.

    Args:
        sweep: With at least one point that is done.

    Returns:
        Lines where one number varies, one for each combination of the other axes, and bars where
        only words do; heat maps where two vary, a panel for each combination of the
        others, of which one may be a number with few values; None where more vary, or there are
        too many combinations.
    """
    numeric = [axis for axis in sweep.varying if axis.is_numeric]
    words = [axis for axis in sweep.varying if not axis.is_numeric]
    groups = math.prod(len(axis.values) for axis in words)
    if len(numeric) == 3:  # the one with the fewest values makes panels, if they are few
        fewest = min(numeric, key=lambda axis: len(axis.values))
        if groups * len(fewest.values) <= MAX_PANELS:
            numeric.remove(fewest)
            words.append(fewest)
            groups *= len(fewest.values)
    if len(numeric) == 1 and groups <= MAX_SERIES:
        return _draw_lines(sweep, numeric[0], words)
    if len(numeric) == 2 and groups <= MAX_PANELS:
        across, down = sorted(numeric, key=lambda axis: len(axis.values), reverse=True)
        return _draw_heat_maps(sweep, across, down, words)
    if not numeric and words:
        return _draw_lines(sweep, words[-1], words[:-1])
    return None


def _draw_lines(sweep: Sweep, axis: Axis, others: Sequence[Axis]) -> Figure:
    with new_figure(7.0, _title(sweep), _subtitle(sweep)) as figure:
        chart = add_axes(figure, 1.7, CHART_TOP_INCHES, 8.7, CHART_HEIGHT_INCHES)
        values = sorted(axis.values) if axis.is_numeric else list(axis.values)
        spaced = axis.is_numeric and not _is_geometric(values)
        positions: dict[Value, float] = {
            value: float(value) if spaced else float(place) for place, value in enumerate(values)
        }
        groups = _groups(sweep, others)
        for turn, (name, rows) in enumerate(groups):
            color = PALETTE[turn % len(PALETTE)]
            if axis.name not in rows[0].values:  # a kernel without this parameter
                chart.axhline(rows[0].value or 0.0, color=color, linestyle="dotted", label=name)
                continue
            ordered = sorted(rows, key=lambda row: positions[row.values[axis.name]])
            places = [positions[row.values[axis.name]] for row in ordered]
            heights = [row.value or 0.0 for row in ordered]
            if not axis.is_numeric:  # words have no order to draw a line along
                width = BARS_WIDTH / len(groups)
                shift = (turn - (len(groups) - 1) / 2) * width
                chart.bar(
                    [place + shift for place in places], heights, width, color=color, label=name
                )
                continue
            chart.plot(
                places,
                heights,
                color=color,
                linestyle=LINE_STYLES[turn // len(PALETTE) % len(LINE_STYLES)],
                linewidth=2.0,
                marker="o",
                markersize=6.5,
                markeredgecolor=BACKGROUND,
                label=name,
            )
        _mark_missing(chart, sweep, axis, positions)
        if spaced and len(values) > MAX_TICKS:
            chart.margins(x=0.03)
        else:
            shown = values[:: math.ceil(len(values) / MAX_TICKS)]
            chart.set_xticks([positions[value] for value in shown], list(map(tick_text, shown)))
        _scale_figures(chart, sweep)
        chart.set_xlabel(axis.name)
        chart.grid(axis="y", color=HAIRLINE, linewidth=0.6)
        if others:
            legend = chart.legend(
                loc="upper left",
                bbox_to_anchor=(1.02, 1.0),
                title=", ".join(other.name for other in others),
                alignment="left",
            )
            legend.get_title().set_fontsize(SMALL_POINTS)
        write_notes(figure, _notes(sweep, [axis] if axis.is_numeric else []))
    return figure


def _draw_heat_maps(
    sweep: Sweep, across: Axis, down: Axis, others: Sequence[Axis]
) -> Figure | None:
    groups = [
        (name, rows)
        for name, rows in _groups(sweep, others)
        if {across.name, down.name} <= set(rows[0].values)
    ]
    if not groups:
        return None
    columns = 2 if len(groups) == 4 else min(len(groups), 3)
    lines = math.ceil(len(groups) / columns)
    panel_height = CHART_HEIGHT_INCHES if lines == 1 else PANEL_HEIGHT_INCHES
    height = CHART_TOP_INCHES + lines * (panel_height + PANEL_GAP_INCHES) + 0.4
    figures = [row.value for row in sweep.done if row.value is not None]
    low, high = min(figures), max(figures)
    if sweep.objective.highest:  # figures that are nearly equal get nearly one colour
        low = min(low, high / LEAST_SPAN)
    else:
        high = max(high, low * LEAST_SPAN)
    with new_figure(height, _title(sweep), _subtitle(sweep)) as figure:
        width = (FULL_WIDTH_INCHES - 0.4) / columns
        for place, (name, rows) in enumerate(groups):
            line, column = divmod(place, columns)
            chart = add_axes(
                figure,
                LEFT_INCHES + 0.75 + column * width,
                CHART_TOP_INCHES + 0.25 + line * (panel_height + PANEL_GAP_INCHES),
                width - 1.1,
                panel_height,
            )
            failed = _not_done_like(sweep, rows[0], others)
            _draw_heat_map(chart, sweep, across, down, rows, failed, (low, high))
            if others:
                title = chart.set_title(name)
                fit_text(title, width - 1.1)
        write_notes(figure, _notes(sweep, [across, down]))
    return figure


def _draw_heat_map(
    chart: Axes,
    sweep: Sweep,
    across: Axis,
    down: Axis,
    rows: Sequence[SweepRow],
    failed: Sequence[SweepRow],
    limits: tuple[float, float],
) -> None:
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, Normalize

    horizontal, vertical = sorted(across.values), sorted(down.values)
    cells = np.full((len(vertical), len(horizontal)), np.nan)
    for row in rows:
        if row.value is not None:
            at = vertical.index(row.values[down.name]), horizontal.index(row.values[across.name])
            cells[at] = row.value
    low, high = limits
    logarithmic = low > 0 and high / low > 10
    norm = LogNorm(low, high) if logarithmic and high > low else Normalize(low, high or 1.0)
    # Dark is best: the eye finds it first, and it stays so without colours.
    colors = "viridis_r" if sweep.objective.highest else "viridis"
    chart.imshow(cells, aspect="auto", origin="lower", cmap=colors, norm=norm)
    chart.set_facecolor("#EEEEEE")
    width = _width_inches(chart)
    _place_ticks(chart, horizontal, vertical)
    chart.set_xlabel(across.name)
    chart.set_ylabel(down.name, labelpad=9)
    best = sweep.best
    crosses = {(row.values[down.name], row.values[across.name]) for row in failed}
    for line, column in np.ndindex(cells.shape):
        value = float(cells[line, column])
        if math.isnan(value):
            if (vertical[line], horizontal[column]) in crosses:
                chart.text(column, line, "×", ha="center", va="center", color=SECONDARY_INK)
            continue
        if width / len(horizontal) < LEAST_CELL_INCHES:
            continue
        chart.text(
            column,
            line,
            _short(sweep, value),
            ha="center",
            va="center",
            fontsize=SMALL_POINTS,
            color=_readable_ink(colormaps[colors](float(norm(value)))),
            fontweight="bold" if best is not None and value == best.value else "normal",
        )
    chart.spines[:].set_visible(False)
    chart.tick_params(length=0)


def _readable_ink(color: Sequence[float]) -> str:
    """Black or white, whichever has the larger contrast on a colour, by WCAG 2.2."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3]
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else BACKGROUND


def _place_ticks(chart: Axes, horizontal: Sequence[Value], vertical: Sequence[Value]) -> None:
    longest = max(len(tick_text(value)) for value in horizontal)
    fitting = max(1, int(_width_inches(chart) / (CHARACTER_INCHES * (longest + 1))))
    for values, most, place in (
        (horizontal, min(MAX_TICKS, fitting), chart.set_xticks),
        (vertical, MAX_TICKS, chart.set_yticks),
    ):
        places = list(range(0, len(values), math.ceil(len(values) / most)))
        place(places, [tick_text(values[number]) for number in places])


def _width_inches(chart: Axes) -> float:
    figure_width: float = chart.get_figure(root=True).get_size_inches()[0]  # type: ignore[union-attr]
    return float(chart.get_position().width * figure_width)


def tick_text(value: Value) -> str:
    """Write a value at an axis: long multiples of the binary suffixes with these, as `64K`."""
    for suffix, factor in sorted(SUFFIXES.items(), key=lambda item: -item[1]):
        if isinstance(value, int) and value >= LEAST_SUFFIXED and not value % factor:
            return f"{value // factor}{suffix}"
    return str(value)


def _not_done_like(sweep: Sweep, like: SweepRow, axes: Sequence[Axis]) -> list[SweepRow]:
    """The points that are not done, of those with the values of another one on some axes."""
    return [
        row
        for row in sweep.rows
        if row.status != "done"
        and all(row.values.get(axis.name) == like.values.get(axis.name) for axis in axes)
    ]


def _draw_roofline(sweep: Sweep) -> Figure:
    """The best runs of the best one's device under its roofline."""
    from memlab.roofline.ceilings import ceilings
    from memlab.roofline.plots.roofline import draw_roofline

    properties = sweep.properties
    if properties is None:
        raise UsageError(
            "the sweep varies too much for one chart, and the ceilings of its GPU are not known "
            "here for a roofline: vary two parameters, or draw it where the GPU is"
        )
    device = sweep.runs[0].measurement.device
    runs = [run for run in sweep.runs if run.measurement.device.name == device.name]
    # The picture keeps the last of too many runs, here the best.
    return draw_roofline(runs[::-1], ceilings(properties), properties.name, sweep.created_at[:10])


def _groups(sweep: Sweep, axes: Sequence[Axis]) -> list[tuple[str, list[SweepRow]]]:
    """The rows that are done by the values of some axes, in the order of the axes."""
    groups: dict[tuple[int, ...], list[SweepRow]] = {}
    for row in sweep.done:
        key = tuple(
            axis.values.index(row.values[axis.name]) if axis.name in row.values else -1
            for axis in axes
        )
        groups.setdefault(key, []).append(row)
    named = []
    for key, rows in sorted(groups.items()):
        shown = (
            f"{axis.name} {axis.values[place]}"
            if axis.is_numeric
            else str(axis.values[place]) or "default"
            for axis, place in zip(axes, key, strict=True)
            if place >= 0
        )
        named.append((", ".join(shown), rows))
    return named


def _mark_missing(chart: Axes, sweep: Sweep, axis: Axis, positions: dict[Value, float]) -> None:
    """Mark values of the axis at which no point is done, at the foot of the chart."""
    done = {row.values.get(axis.name) for row in sweep.done}
    tried = {row.values.get(axis.name) for row in sweep.rows}
    for value, position in positions.items():
        if value in tried - done:
            chart.text(
                position,
                0.02,
                "×",
                transform=chart.get_xaxis_transform(),
                ha="center",
                color=SECONDARY_INK,
            )


def _scale_figures(chart: Axes, sweep: Sweep) -> None:
    """Scale the axis of the figures: logarithmic where they differ by more than ten times."""
    from matplotlib.ticker import LogLocator

    figures = [row.value for row in sweep.done if row.value]
    if figures and max(figures) / min(figures) > 10 and not chart.patches:
        chart.set_yscale("log")
        chart.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        chart.minorticks_off()
    else:
        chart.set_ylim(bottom=0)
    chart.yaxis.set_major_formatter(lambda value, _: _short(sweep, value))
    chart.set_ylabel(sweep.objective.label)


def _short(sweep: Sweep, value: float) -> str:
    """Write a figure in a few characters: `1.9 ms`, `13 T`."""
    number, _, unit = si_text(value, sweep.objective.unit).partition(" ")
    return f"{float(number):.3g} {unit}".rstrip() if value else "0"


def _is_geometric(values: Sequence[Value]) -> bool:
    """Whether numbers grow by a factor rather than a step: they then get equal places."""
    numbers = [float(value) for value in values]
    return len(numbers) < 3 or numbers[0] <= 0 or numbers[-1] / numbers[0] > 4 * len(numbers) / 3


def _title(sweep: Sweep) -> str:
    kernels = ", ".join(map(str, sweep.axes[0].values))
    return f"{sweep.objective.label.capitalize()} of {kernels}"


def _subtitle(sweep: Sweep) -> str:
    names = dict.fromkeys(run.measurement.device.name for run in sweep.runs)
    device = next(iter(names)) if len(names) == 1 else f"{len(names)} devices"
    provenances = sorted({run.measurement.time.provenance for run in sweep.runs})
    return f"{device}  ·  times {' and '.join(provenances)}"


def _notes(sweep: Sweep, numbers: Sequence[Axis]) -> list[str]:
    """Say what is fixed, and what the chart over these numbers lacks."""
    notes = []
    fixed = {
        axis.name: axis.values[0]
        for axis in sweep.axes[1:]
        if not axis.varies and axis.values[0] != ""
    }
    if fixed:
        notes.append(", ".join(f"{name} {value}" for name, value in fixed.items()) + ".")
    lacking = dict.fromkeys(
        str(row.values["kernel"])
        for row in sweep.done
        if not {axis.name for axis in numbers} <= set(row.values)
    )
    if lacking:
        names = " and ".join(axis.name for axis in numbers)
        what = "Dotted" if len(numbers) == 1 else "Not shown"
        notes.append(f"{what}: {', '.join(lacking)}, without {names}.")
    missing = len(sweep.rows) - len(sweep.done)
    if missing:
        notes.append(f"× marks what is not done: {missing} {plural(missing, 'point')}.")
    if len(numbers) == 2 and sweep.points > len(sweep.rows):
        notes.append(f"{len(sweep.rows)} of {sweep.points} points were run.")
    return notes
