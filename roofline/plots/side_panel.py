"""The panel beside the roofline: performance by tile width, or the bandwidth that each run made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.plots.label_placement import axes_inches, figure_of, fit_name, spread_positions
from memlab.roofline.plots.style import BACKGROUND, INK, SMALL_POINTS, TEXT_POINTS, text_halo
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Run

NAME_COLUMN_INCHES = 1.35
"""Most room for the names of the kernels in the panel by tile width."""

LEADER_INCHES = 0.2
"""Room between the last tile width and the names, for the lines that lead to them."""

NAME_GAP_INCHES = 0.17
"""Least distance between two names."""

LOG_AXIS_RATIO = 10.0
"""Rates that differ by more than this are drawn on a logarithmic axis."""

FULLY_LABELLED_RANGE = 1e3
"""Within this range 2 and 5 of each decade have their figure too."""

VALUE_INCHES = 0.8
"""Room for a figure over its bar."""

MIN_BARS = 4
"""Bars are no higher than if there were so many."""


def draw_side_panel(axes: Axes, entries: Sequence[RunStyle], dram_bytes_per_s: float) -> None:
    """Draw performance by tile width, or where no run has a tile, what each made of the DRAM.

    Args:
        axes: Empty, their size final.
        entries: The runs.
        dram_bytes_per_s: The DRAM's bandwidth; 0 where it is not known.
    """
    tiled = [entry for entry in entries if entry.run.measurement.tile and _gflop_per_s(entry)]
    if tiled:
        _draw_tiles(axes, sorted(tiled, key=_tile_width))
    else:
        _draw_bandwidths(axes, entries, dram_bytes_per_s)


def _draw_tiles(axes: Axes, tiled: Sequence[RunStyle]) -> None:
    """Draw GFLOP/s over the tile width, a line for each kernel at one size.

    The axis is logarithmic where the slower ones could not be told apart on a linear one.
    """
    _write_title(axes, "GFLOP/s by tile width")
    widths = sorted({_tile_width(entry) for entry in tiled})
    place = {width: index for index, width in enumerate(widths)}
    rates = [_gflop_per_s(entry) for entry in tiled]
    for kind in dict.fromkeys(map(_series_key, tiled)):
        line = [each for each in tiled if _series_key(each) == kind]
        axes.plot(
            [place[_tile_width(entry)] for entry in line],
            [_gflop_per_s(entry) for entry in line],
            lw=1.2,
            zorder=2,
            **line[0].line,
        )
    for entry in tiled:
        for looks in (entry.marker_gap, entry.marker):
            at = ([place[_tile_width(entry)]], [_gflop_per_s(entry)])
            axes.plot(*at, marker="o", zorder=3, **looks)
    if max(rates) > LOG_AXIS_RATIO * min(rates):
        _set_log_rate_axis(axes, min(rates) / 1.5, 1.5 * max(rates))
    else:
        axes.set_ylim(0, 1.12 * max(rates))
        axes.locator_params(axis="y", nbins=5)
    axes.set_xticks(range(len(widths)), [str(width) for width in widths])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(visible=True, axis="y", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("tile width", labelpad=4)

    last = {entry.series: entry for entry in tiled}
    names = [_write_series_name(axes, entry) for entry in last.values()]
    widest = max(name.get_window_extent().width for name in names) / figure_of(axes).dpi
    room = widest + LEADER_INCHES
    span = len(widths) - 1 + 0.5
    axes.set_xlim(-0.3, -0.3 + span + span * room / (axes_inches(axes)[0] - room))
    ends = {
        name: (float(place[_tile_width(entry)]), entry)
        for name, entry in zip(names, last.values(), strict=True)
    }
    _draw_name_leaders(axes, ends, axes_inches(axes)[0] - widest)


def _set_log_rate_axis(axes: Axes, low: float, high: float) -> None:
    """Make the axis of rates logarithmic, with figures in plain words only."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(low, high)
    few = high / low < FULLY_LABELLED_RANGE
    axes.yaxis.set_major_locator(LogLocator(base=10.0, subs=(1, 2, 5) if few else (1,)))
    axes.yaxis.set_minor_locator(LogLocator(base=10.0, subs=range(2, 10)))
    axes.yaxis.set_minor_formatter(NullFormatter())  # its own would write TeX


def _write_title(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=TEXT_POINTS, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _write_series_name(axes: Axes, entry: RunStyle) -> Text:
    """Write a series' name, its place still open."""
    name = axes.text(0, 0, "", transform=axes.transAxes, va="center", fontsize=SMALL_POINTS)
    fit_name(name, *entry.series, NAME_COLUMN_INCHES)
    return name


def _draw_name_leaders(axes: Axes, ends: dict[Text, tuple[float, RunStyle]], left: float) -> None:
    """Put names one above the other, so many inches from the left, each led to by a line."""
    from matplotlib.transforms import Affine2D

    width, height = axes_inches(axes)
    inches = axes.transData + axes.transAxes.inverted() + Affine2D().scale(width, height)
    points = {name: inches.transform((x, _gflop_per_s(entry))) for name, (x, entry) in ends.items()}
    ordered = sorted(points, key=lambda name: float(points[name][1]))
    wanted = [float(points[name][1]) for name in ordered]
    heights = spread_positions(wanted, NAME_GAP_INCHES, 0.05, height - 0.05)
    for name, at, place in zip(ordered, wanted, heights, strict=True):
        name.set_position((left / width, place / height))
        axes.plot(
            [points[name][0] / width, (left - 0.13) / width, (left - 0.04) / width],
            [at / height, at / height, place / height],
            transform=axes.transAxes,
            lw=0.8,
            alpha=0.6,
            zorder=1,
            **ends[name][1].line,
        )


def _draw_bandwidths(axes: Axes, entries: Sequence[RunStyle], dram_bytes_per_s: float) -> None:
    """Draw a bar for each run: compulsory bytes over its time, beside the DRAM's bandwidth.

    That is what reading each input and writing each output once takes at least, so it says of any
    kernel how far it is from the unavoidable.
    """
    from matplotlib.colors import to_rgba

    _write_title(axes, "Effective bandwidth")
    rates = [_effective_bytes_per_s(entry.run) for entry in entries]
    axes.set_xlim(0, 1.02 * (max([*rates, dram_bytes_per_s]) or 1.0))
    axes.set_ylim(max(len(entries), MIN_BARS) - 0.4, -0.6)
    axes.set_yticks([])
    axes.spines[["left"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: _rate_tick_text(value))
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("compulsory bytes / time", labelpad=4)
    if dram_bytes_per_s:
        axes.axvline(dram_bytes_per_s, color=INK, lw=1.8, zorder=1)
        axes.annotate(
            "DRAM",
            xy=(dram_bytes_per_s, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=SMALL_POINTS,
        )
    for rank, (entry, rate) in enumerate(zip(entries, rates, strict=True)):
        measured = entry.run.measurement.time.provenance == "measured"
        axes.barh(
            [rank + 0.25],
            [rate],
            height=0.24,
            facecolor=to_rgba(entry.color, 0.4) if measured else BACKGROUND,
            edgecolor=entry.color,
            linestyle=entry.line_style,
            linewidth=1.1,
            zorder=2,
        )
        _label_bar(axes, rank, entry, f"{'' if measured else '~'}{si_text(rate, 'B/s')}")


def _label_bar(axes: Axes, rank: int, entry: RunStyle, figure: str) -> None:
    """Write a run's name and its figure over its bar, at the two ends of the panel."""
    width = axes_inches(axes)[0]
    for x, align, inches, name, rest in (
        (0.0, "left", width - VALUE_INCHES - 0.1, entry.name, entry.rest),
        (1.0 - 0.1 / width, "right", VALUE_INCHES, figure, ""),
    ):
        text = axes.text(
            x,
            rank - 0.02,
            "",
            transform=axes.get_yaxis_transform(),
            ha=align,
            va="baseline",
            fontsize=SMALL_POINTS,
            path_effects=text_halo(),
            zorder=1.5,  # over the DRAM's line, and its halo under the bars
        )
        fit_name(text, name, rest, inches)


def _rate_tick_text(bytes_per_s: float) -> str:
    number, unit = si_text(bytes_per_s, "B/s").split(" ")
    return f"{float(number):g} {unit}" if bytes_per_s else "0"


def _series_key(entry: RunStyle) -> tuple[tuple[str, str], str]:
    """What the points of one line have in common: none leads from measured to modelled times."""
    return entry.series, entry.run.measurement.time.provenance


def _tile_width(entry: RunStyle) -> int:
    return entry.run.measurement.tile or 0


def _gflop_per_s(entry: RunStyle) -> float:
    return entry.run.placement.flop_per_s / 1e9


def _effective_bytes_per_s(run: Run) -> float:
    """NVIDIA's effective bandwidth (CUDA C++ Best Practices Guide), of the compulsory bytes."""
    return run.measurement.compulsory_bytes / run.measurement.time.median_s
