"""The memory hierarchy as a picture: latency and bandwidth by footprint, and all measured rates."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from memlab.roofline.plots.figure import add_axes, new_figure, write_notes
from memlab.roofline.plots.label_placement import label_line_ends
from memlab.roofline.plots.style import (
    BACKGROUND,
    HAIRLINE,
    INK,
    PALETTE,
    SECONDARY_INK,
    SMALL_POINTS,
)
from memlab.roofline.units import sentence_number, si_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.device.gpu.peaks.records import Footprint, Peaks, Rate

HEIGHT_INCHES = 9.2
UPPER_INCHES, LOWER_INCHES = 1.15, 5.15
"""Tops of the two rows of panels."""

PANEL_HEIGHT_INCHES = 3.15
LATENCY_COLOR, BANDWIDTH_COLOR, ARITHMETIC_COLOR = PALETTE[1], PALETTE[0], PALETTE[2]
LEVEL_TINTS = {"L1": "#F3F7FB", "L2": "#E4EEF7", "DRAM": "#D3E3F1"}
LATENCY_KEYS = ("l1", "l2_near", "l2_far", "dram")
RATE_NAMES = {"l1_read": "L1", "l2_read": "L2", "dram_read": "DRAM"}
LEVEL_INCHES = 2.0
"""Greatest width of the labels right of the curves."""

KIB, MIB = 2**10, 2**20
BAR_HEIGHT = 0.62
BARS_NOTE = (
    "Bars: logarithmic; the mark is the datasheet's limit at the clock it assumes, and % is of it. "
    "Shared lines: one read of the L2 serves several SMs."
)


def draw_peaks(peaks: Peaks) -> Figure:
    """Draw the measured peaks of one GPU.

    Left, latency and bandwidth over the footprint, with the memory levels as bands; right, a bar
    per rate with the datasheet's limit as a mark.

    Returns:
        A figure of 14 by 9.2 inches.
    """
    points, date = peaks.footprints, peaks.created_at[:10]
    cycles = [point.latency_cycles for point in points]
    latencies = {
        f"{latency.label} {sentence_number(latency.cycles)} ({si_text(latency.seconds, 's')})": (
            latency.cycles
        )
        for latency in peaks.latencies
        if latency.key in LATENCY_KEYS
    }
    bandwidths = [(point.bandwidth_bytes_per_s or 0.0) / 1e12 for point in points]
    rates = {
        f"{RATE_NAMES[rate.key]} {si_text(rate.value, 'B/s')}": rate.value / 1e12
        for rate in peaks.rates
        if rate.key in RATE_NAMES
    }
    title = f"Memory hierarchy of {peaks.device.name}"
    with new_figure(HEIGHT_INCHES, title, f"measured  ·  {date}") as figure:
        axes = add_axes(figure, 0.9, UPPER_INCHES, 5.4, PANEL_HEIGHT_INCHES)
        axes.set_title("Latency by footprint, one thread")
        axes.set_ylabel("Latency of a load (cycles)", labelpad=6)
        _draw_curve(axes, points, cycles, latencies, LATENCY_COLOR)
        axes = add_axes(figure, 0.9, LOWER_INCHES, 5.4, PANEL_HEIGHT_INCHES)
        axes.set_title("Read bandwidth by footprint, every SM reads it all")
        axes.set_ylabel("Read bandwidth (TB/s)", labelpad=6)
        axes.set_xlabel("Footprint", labelpad=6)
        _draw_curve(axes, points, bandwidths, rates, BANDWIDTH_COLOR)
        for title, unit, color, top in (
            ("Bandwidth", "B/s", BANDWIDTH_COLOR, UPPER_INCHES),
            ("Arithmetic", "FLOP/s", ARITHMETIC_COLOR, LOWER_INCHES),
        ):
            axes = add_axes(figure, 10.2, top, 1.8, PANEL_HEIGHT_INCHES)
            axes.set_title(title)
            _draw_bars(axes, [rate for rate in peaks.rates if rate.unit == unit], color)
        write_notes(figure, [BARS_NOTE])
    return figure


def _draw_curve(
    axes: Axes,
    points: Sequence[Footprint],
    values: Sequence[float],
    levels: dict[str, float],
    color: str,
) -> None:
    """Draw values over the footprint, the memory levels as bands, and labelled level values."""
    sizes = [point.footprint_bytes for point in points]
    curve = [(size, value) for size, value in zip(sizes, values, strict=True) if value]
    left, right = sizes[0] / 1.12, sizes[-1] * 1.12
    top = 1.18 * max(value for _, value in curve)
    axes.set_xscale("log", base=2)
    axes.set(xlim=(left, right), ylim=(0, top))
    powers = [2**power for power in range(int(math.log2(sizes[0])), int(math.log2(sizes[-1])) + 1)]
    axes.set_xticks(powers[::4], [_size_text(power) for power in powers[::4]])
    axes.set_xticks(powers, [""] * len(powers), minor=True)
    axes.grid(visible=True, axis="y", color=BACKGROUND, linewidth=1.0)
    edges = (left, *_capacity_edges(points), right)
    for (name, tint), (first, last) in zip(
        LEVEL_TINTS.items(), itertools.pairwise(edges), strict=True
    ):
        axes.axvspan(first, last, color=tint, lw=0, zorder=0)
        axes.text(
            math.sqrt(first * last),
            top * 0.955,
            name,
            ha="center",
            va="top",
            color=SECONDARY_INK,
            fontsize=12,
            fontweight="bold",
        )
    x, y = zip(*curve, strict=True)
    axes.plot(x, y, color=color, lw=2.2, marker="o", ms=5, mec=BACKGROUND, mew=0.8)
    starts, names = [(left, value) for value in levels.values()], [(name, "") for name in levels]
    looks: dict[str, Any] = {"color": color, "linestyle": (0, (1, 2))}
    label_line_ends(axes, starts, names, [looks] * len(names), LEVEL_INCHES)


def _capacity_edges(points: Sequence[Footprint]) -> tuple[float, float]:
    """Estimate the capacities of the L1 and the L2 in bytes, from the latencies.

    The L1 ends where latency leaves its first plateau, the L2 halfway from the second to the last.
    """
    lowest, highest = points[0].latency_cycles, points[-1].latency_cycles
    middle = sorted(
        point.latency_cycles for point in points if MIB // 2 <= point.footprint_bytes <= 8 * MIB
    )
    plateau = middle[len(middle) // 2] if middle else (lowest + highest) / 2
    return (
        _crossing_footprint(points, lowest + (plateau - lowest) / 10),
        _crossing_footprint(points, (plateau + highest) / 2),
    )


def _crossing_footprint(points: Sequence[Footprint], cycles: float) -> float:
    """The footprint in bytes at which latency exceeds a value, between two measured ones."""
    for before, after in itertools.pairwise(points):
        if before.latency_cycles <= cycles < after.latency_cycles:
            return math.sqrt(before.footprint_bytes * after.footprint_bytes)
    return math.sqrt(points[0].footprint_bytes * points[-1].footprint_bytes)


def _draw_bars(axes: Axes, rates: Sequence[Rate], color: str) -> None:
    """Draw rates as bars on a logarithmic axis, with the datasheet's limit as a mark."""
    values, rows = [rate.value for rate in rates], range(len(rates))
    low = 10.0 ** math.floor(math.log10(min(values)) - 0.3)
    high = max(max(rate.value, rate.theoretical or 0.0) for rate in rates) * 1.6
    axes.set_xscale("log")
    axes.set(xlim=(low, high), ylim=(len(rates) - 0.45, -0.55))
    decades = [10.0**power for power in range(21) if low <= 10.0**power <= high]
    axes.set_xticks(decades, [""] * len(decades))
    axes.minorticks_off()
    axes.tick_params(length=0)
    axes.set_yticks(rows, [rate.label for rate in rates], fontsize=SMALL_POINTS)
    axes.grid(visible=True, axis="x", color=HAIRLINE, linewidth=0.6)
    axes.spines[["bottom"]].set_visible(False)
    axes.barh(rows, values, height=BAR_HEIGHT, color=color, zorder=2)
    figures = axes.secondary_yaxis("right")
    figures.tick_params(length=0)
    figures.spines[["right"]].set_visible(False)
    figures.set_yticks(rows, [_rate_text(rate) for rate in rates], fontsize=SMALL_POINTS)
    for row, rate in enumerate(rates):
        if rate.theoretical:
            ends = (row - BAR_HEIGHT / 2 - 0.08, row + BAR_HEIGHT / 2 + 0.08)
            axes.vlines(rate.theoretical, *ends, color=INK, lw=1.6, zorder=3)


def _rate_text(rate: Rate) -> str:
    share = "" if rate.fraction is None else f"  {rate.fraction:.1%}"
    return f"{si_text(rate.value, rate.unit)}{share}{' invalid' if rate.invalid else ''}"


def _size_text(size: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", MIB), ("KiB", KIB)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size:g} B"
