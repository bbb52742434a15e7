"""The panel beside the roofline: performance by tile width, or the bandwidth that each run made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.plots.label_placement import axes_inches, figure_of, fit_name, spread
from memlab.roofline.plots.style import INK, PAPER, SMALL_POINTS, TEXT_POINTS, halo
from memlab.roofline.units import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from memlab.roofline.plots.style import Entry
    from memlab.roofline.run import Run

NAMES_INCHES = 1.35
"""Most room for the names of the kernels in the panel by tile width."""

LEADER_INCHES = 0.2
"""Room between the last tile width and the names, for the lines that lead to them."""

NAMES_GAP_INCHES = 0.17
"""Least distance between two names."""

WIDE_RANGE = 10.0
"""Rates that differ by more than this are drawn on a logarithmic axis."""

FEW_DECADES = 1e3
"""Within this range 2 and 5 of each decade have their figure too."""

VALUE_INCHES = 0.8
"""Room for a figure over its bar."""

LEAST_BARS = 4
"""Bars are no higher than if there were so many."""


def draw_beside(axes: Axes, entries: Sequence[Entry], dram_bytes_per_s: float) -> None:
    """Draw performance by tile width, or where no run has a tile, what each made of the DRAM.

    Args:
        axes: Empty, their size final.
        entries: The runs.
        dram_bytes_per_s: The DRAM's bandwidth; 0 where it is not known.
    """
    tiled = [entry for entry in entries if entry.run.measurement.tile and _gflop_per_s(entry)]
    if tiled:
        _draw_tiles(axes, sorted(tiled, key=_tile))
    else:
        _draw_bandwidths(axes, entries, dram_bytes_per_s)


def _draw_tiles(axes: Axes, tiled: Sequence[Entry]) -> None:
    """Draw GFLOP/s over the tile width, a line for each kernel at one size.

    The axis is logarithmic where the slower ones could not be told apart on a linear one.
    """
    _head(axes, "GFLOP/s by tile width")
    widths = sorted({_tile(entry) for entry in tiled})
    place = {width: index for index, width in enumerate(widths)}
    rates = [_gflop_per_s(entry) for entry in tiled]
    for kind in dict.fromkeys(map(_kind, tiled)):
        line = [each for each in tiled if _kind(each) == kind]
        axes.plot(
            [place[_tile(entry)] for entry in line],
            [_gflop_per_s(entry) for entry in line],
            lw=1.2,
            zorder=2,
            **line[0].line,
        )
    for entry in tiled:
        for looks in (entry.cutout, entry.marker):
            at = ([place[_tile(entry)]], [_gflop_per_s(entry)])
            axes.plot(*at, marker="o", zorder=3, **looks)
    if max(rates) > WIDE_RANGE * min(rates):
        _log_rates(axes, min(rates) / 1.5, 1.5 * max(rates))
    else:
        axes.set_ylim(0, 1.12 * max(rates))
        axes.locator_params(axis="y", nbins=5)
    axes.set_xticks(range(len(widths)), [str(width) for width in widths])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(visible=True, axis="y", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("tile width", labelpad=4)

    last = {entry.series: entry for entry in tiled}
    names = [_name(axes, entry) for entry in last.values()]
    widest = max(name.get_window_extent().width for name in names) / figure_of(axes).dpi
    room = widest + LEADER_INCHES
    span = len(widths) - 1 + 0.5
    axes.set_xlim(-0.3, -0.3 + span + span * room / (axes_inches(axes)[0] - room))
    ends = {
        name: (float(place[_tile(entry)]), entry)
        for name, entry in zip(names, last.values(), strict=True)
    }
    _lead_to_names(axes, ends, axes_inches(axes)[0] - widest)


def _log_rates(axes: Axes, low: float, high: float) -> None:
    """Make the axis of rates logarithmic, with figures in plain words only."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(low, high)
    few = high / low < FEW_DECADES
    axes.yaxis.set_major_locator(LogLocator(base=10.0, subs=(1, 2, 5) if few else (1,)))
    axes.yaxis.set_minor_locator(LogLocator(base=10.0, subs=range(2, 10)))
    axes.yaxis.set_minor_formatter(NullFormatter())  # its own would write TeX


def _head(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=TEXT_POINTS, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _name(axes: Axes, entry: Entry) -> Text:
    """Write a series' name, its place still open."""
    name = axes.text(0, 0, "", transform=axes.transAxes, va="center", fontsize=SMALL_POINTS)
    fit_name(name, *entry.series, NAMES_INCHES)
    return name


def _lead_to_names(axes: Axes, ends: dict[Text, tuple[float, Entry]], left: float) -> None:
    """Put names one above the other, so many inches from the left, each led to by a line."""
    from matplotlib.transforms import Affine2D

    width, height = axes_inches(axes)
    inches = axes.transData + axes.transAxes.inverted() + Affine2D().scale(width, height)
    points = {name: inches.transform((x, _gflop_per_s(entry))) for name, (x, entry) in ends.items()}
    ordered = sorted(points, key=lambda name: float(points[name][1]))
    wanted = [float(points[name][1]) for name in ordered]
    heights = spread(wanted, NAMES_GAP_INCHES, 0.05, height - 0.05)
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


def _draw_bandwidths(axes: Axes, entries: Sequence[Entry], dram_bytes_per_s: float) -> None:
    """Draw a bar for each run: compulsory bytes over its time, beside the DRAM's bandwidth.

    That is what reading each input and writing each output once takes at least, so it says of any
    kernel how far it is from the unavoidable.
    """
    from matplotlib.colors import to_rgba

    _head(axes, "Effective bandwidth")
    rates = [_effective_bytes_per_s(entry.run) for entry in entries]
    axes.set_xlim(0, 1.02 * (max([*rates, dram_bytes_per_s]) or 1.0))
    axes.set_ylim(max(len(entries), LEAST_BARS) - 0.4, -0.6)
    axes.set_yticks([])
    axes.spines[["left"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: _tick(value))
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
            facecolor=to_rgba(entry.color, 0.4) if measured else PAPER,
            edgecolor=entry.color,
            linestyle=entry.stroke,
            linewidth=1.1,
            zorder=2,
        )
        _bar_texts(axes, rank, entry, f"{'' if measured else '~'}{scaled(rate, 'B/s')}")


def _bar_texts(axes: Axes, rank: int, entry: Entry, figure: str) -> None:
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
            path_effects=halo(),
            zorder=1.5,  # over the DRAM's line, and its halo under the bars
        )
        fit_name(text, name, rest, inches)


def _tick(bytes_per_s: float) -> str:
    number, unit = scaled(bytes_per_s, "B/s").split(" ")
    return f"{float(number):g} {unit}" if bytes_per_s else "0"


def _kind(entry: Entry) -> tuple[tuple[str, str], str]:
    """What the points of one line have in common: none leads from measured to modelled times."""
    return entry.series, entry.run.measurement.time.provenance


def _tile(entry: Entry) -> int:
    return entry.run.measurement.tile or 0


def _gflop_per_s(entry: Entry) -> float:
    return entry.run.placement.flop_per_s / 1e9


def _effective_bytes_per_s(run: Run) -> float:
    """NVIDIA's effective bandwidth (CUDA C++ Best Practices Guide), of the compulsory bytes."""
    return run.measurement.compulsory_bytes / run.measurement.time.median_s
