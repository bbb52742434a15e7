"""The memory hierarchy as a picture: latency and bandwidth by footprint, then every rate.

Drawn as the roofline is (`memlab.roofline.plots.roofline`): through Matplotlib's objects alone.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from memlab.roofline.plots.label_placement import spread_positions
from memlab.roofline.plots.style import (
    BACKGROUND,
    DOTS_PER_INCH,
    HAIRLINE,
    INK,
    MATPLOTLIB_SETTINGS,
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

WIDTH_INCHES, HEIGHT_INCHES = 14.0, 9.2
LATENCY_COLOR, BANDWIDTH_COLOR = PALETTE[1], PALETTE[0]
ARITHMETIC_COLOR = PALETTE[2]
LEVEL_TINTS = {"L1": "#F3F7FB", "L2": "#E4EEF7", "DRAM": "#D3E3F1"}
KIB, MIB = 2**10, 2**20
BAR_HEIGHT = 0.62
BARS_NOTE = (
    "Bars: logarithmic; the mark is the datasheet's limit at the clock it assumes, and % is of it. "
    "Shared lines: one read of the L2 serves several SMs."
)


def draw_peaks(peaks: Peaks) -> Figure:
    """Draw what was measured of one GPU.

    Left, latency and bandwidth over the footprint on one axis, with the levels of the hierarchy
    as bands; right, every rate as a bar with the datasheet's limit as a mark.

    Returns:
        A figure of 14 by 9.2 inches.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(
            0.032,
            0.948,
            f"Memory hierarchy of {peaks.device.name}",
            fontsize=20,
            fontweight="bold",
            va="center",
        )
        figure.text(
            0.975,
            0.948,
            f"measured  ·  {peaks.created_at[:10]}",
            ha="right",
            va="center",
            color=SECONDARY_INK,
        )
        _draw_latency(figure.add_axes((0.064, 0.53, 0.385, 0.345)), peaks)
        _draw_bandwidth(figure.add_axes((0.064, 0.1, 0.385, 0.335)), peaks)
        memory = [rate for rate in peaks.rates if rate.unit == "B/s"]
        arithmetic = [rate for rate in peaks.rates if rate.unit == "FLOP/s"]
        _draw_bars(figure.add_axes((0.73, 0.53, 0.13, 0.345)), memory, BANDWIDTH_COLOR, "Bandwidth")
        _draw_bars(
            figure.add_axes((0.73, 0.1, 0.13, 0.335)),
            arithmetic,
            ARITHMETIC_COLOR,
            "Arithmetic",
        )
        figure.text(0.032, 0.018, BARS_NOTE, fontsize=SMALL_POINTS, color=SECONDARY_INK)
    return figure


def _draw_latency(axes: Axes, peaks: Peaks) -> None:
    points = peaks.footprints
    top = 1.18 * max(point.latency_cycles for point in points)
    _set_up_footprint_axes(
        axes, points, top, "Latency of a load (cycles)", "Latency by footprint, one thread"
    )
    axes.plot(
        [point.footprint_bytes for point in points],
        [point.latency_cycles for point in points],
        color=LATENCY_COLOR,
        lw=2.2,
        marker="o",
        ms=5,
        mec=BACKGROUND,
        mew=0.8,
        zorder=4,
    )
    levels = [each for each in peaks.latencies if each.key in ("l1", "l2_near", "l2_far", "dram")]
    ordered = sorted(levels, key=lambda each: each.cycles)
    inches = HEIGHT_INCHES * axes.get_position().height
    wanted = [each.cycles / top * inches for each in ordered]
    for each, place in zip(ordered, spread_positions(wanted, 0.19, 0.08, inches), strict=True):
        axes.axhline(each.cycles, color=LATENCY_COLOR, lw=0.8, ls=(0, (1, 2)), zorder=2)
        axes.annotate(
            f"{each.label} {sentence_number(each.cycles)} ({si_text(each.seconds, 's')})",
            xy=(1.0, each.cycles),
            xycoords=("axes fraction", "data"),
            xytext=(1.015, place / inches),
            textcoords="axes fraction",
            va="center",
            fontsize=SMALL_POINTS,
            color=INK,
            annotation_clip=False,
        )


def _draw_bandwidth(axes: Axes, peaks: Peaks) -> None:
    points = [each for each in peaks.footprints if each.bandwidth_bytes_per_s]
    values = [(each.bandwidth_bytes_per_s or 0.0) / 1e12 for each in points]
    top = 1.18 * max(values)
    _set_up_footprint_axes(
        axes, peaks.footprints, top, "Read bandwidth (TB/s)",
        "Read bandwidth by footprint, every SM reads it all",
    )  # fmt: skip
    axes.plot(
        [each.footprint_bytes for each in points],
        values,
        color=BANDWIDTH_COLOR,
        lw=2.2,
        marker="o",
        ms=5,
        mec=BACKGROUND,
        mew=0.8,
        zorder=4,
    )
    axes.set_xlabel("Footprint", labelpad=6)
    for key, label in (("l1_read", "L1"), ("l2_read", "L2"), ("dram_read", "DRAM")):
        for rate in peaks.rates:
            if rate.key == key:
                axes.axhline(
                    rate.value / 1e12, color=BANDWIDTH_COLOR, lw=0.8, ls=(0, (1, 2)), zorder=2
                )
                axes.annotate(
                    f"{label} {si_text(rate.value, 'B/s')}",
                    xy=(1.0, rate.value / 1e12),
                    xycoords=("axes fraction", "data"),
                    xytext=(8, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=SMALL_POINTS,
                    annotation_clip=False,
                )


def _set_up_footprint_axes(
    axes: Axes, points: Sequence[Footprint], top: float, ylabel: str, title: str
) -> None:
    """Set up axes over the footprint, with the levels as bands."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    first, last = points[0].footprint_bytes, points[-1].footprint_bytes
    axes.set_xscale("log", base=2)
    axes.set_xlim(first / 1.12, last * 1.12)
    axes.set_ylim(0, top)
    powers = range(int(math.log2(first)), int(math.log2(last)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([2**power for power in powers[::4]]))
    axes.xaxis.set_minor_locator(FixedLocator([2**power for power in powers]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _size_text(value)))
    axes.set_ylabel(ylabel, labelpad=6)
    axes.set_title(title, loc="left", fontsize=12.5, fontweight="bold", pad=8)
    axes.grid(visible=True, axis="y", color="#FFFFFF", linewidth=1.0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    edges = (first / 1.12, *_capacity_edges(points), last * 1.12)
    for (name, tint), left, right in zip(LEVEL_TINTS.items(), edges, edges[1:], strict=False):
        axes.axvspan(left, right, color=tint, lw=0, zorder=0)
        axes.text(
            math.sqrt(left * right), top * 0.955, name, ha="center", va="top", color=SECONDARY_INK,
            fontsize=12, fontweight="bold",
        )  # fmt: skip


def _capacity_edges(points: Sequence[Footprint]) -> tuple[float, float]:
    """Find where latency leaves the first plateau and where it is halfway from the second on.

    Between the footprints of the two neighbours that enclose the crossing.
    """
    lowest, highest = points[0].latency_cycles, points[-1].latency_cycles
    middle = [
        point.latency_cycles for point in points if MIB // 2 <= point.footprint_bytes <= 8 * MIB
    ]
    plateau = sorted(middle)[len(middle) // 2] if middle else (lowest + highest) / 2
    return (
        _crossing_footprint(points, lowest + (plateau - lowest) / 10),
        _crossing_footprint(points, (plateau + highest) / 2),
    )


def _crossing_footprint(points: Sequence[Footprint], level: float) -> float:
    for before, after in itertools.pairwise(points):
        if before.latency_cycles <= level < after.latency_cycles:
            return math.sqrt(before.footprint_bytes * after.footprint_bytes)
    return math.sqrt(points[0].footprint_bytes * points[-1].footprint_bytes)


def _draw_bars(axes: Axes, rates: Sequence[Rate], color: str, title: str) -> None:
    """Draw rates as bars on a logarithmic axis, with the datasheet's limit as a mark."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low = 10.0 ** math.floor(math.log10(min(rate.value for rate in rates)) - 0.3)
    high = max(max(rate.value, rate.theoretical or 0.0) for rate in rates) * 1.6
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(len(rates) - 0.45, -0.55)
    axes.xaxis.set_major_locator(LogLocator(base=10.0))
    axes.xaxis.set_major_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_tick_params(length=0)
    axes.yaxis.set_tick_params(length=0)
    axes.set_yticks(range(len(rates)), [rate.label for rate in rates], fontsize=SMALL_POINTS)
    axes.grid(visible=True, axis="x", color=HAIRLINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=12.5, fontweight="bold", pad=8)
    for row, rate in enumerate(rates):
        axes.barh(row, rate.value - low, left=low, height=BAR_HEIGHT, color=color, zorder=2)
        if rate.theoretical:
            ends = [row - BAR_HEIGHT / 2 - 0.08, row + BAR_HEIGHT / 2 + 0.08]
            axes.plot([rate.theoretical] * 2, ends, color=INK, lw=1.6, zorder=3)
        share = "" if rate.fraction is None else f"  {rate.fraction:.1%}"
        share += " invalid" if rate.invalid else ""
        axes.annotate(
            f"{si_text(rate.value, rate.unit)}{share}",
            xy=(1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_POINTS,
            annotation_clip=False,
        )


def _size_text(size: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", MIB), ("KiB", KIB)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size:g} B"
