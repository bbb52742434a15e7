"""The roofline's side panel: performance by tile width, or every run's effective bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.roofline.placement import effective_bytes_per_s
from memlab.roofline.plots.figure import rate_tick_text
from memlab.roofline.plots.label_placement import (
    LEADER_INCHES,
    figure_of,
    fit_name,
    label_line_ends,
    text_inches,
)
from memlab.roofline.plots.style import BACKGROUND, INK, SMALL_POINTS, cross_style, text_halo
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from memlab.roofline.plots.style import RunStyle

NAME_INCHES = 1.35
"""Greatest width of a kernel's name in the panel by tile width."""

VALUE_INCHES = 0.8
"""Width of the figure above a bar."""

LOG_AXIS_RATIO = 10.0
"""Rates that differ by more than this factor are drawn on a logarithmic axis."""

FULLY_LABELLED_RATIO = 400.0
"""Up to this factor 2 and 5 of every decade have a tick label too."""

MIN_BARS = 4
"""Fewer bars are as narrow as this many."""


def draw_side_panel(axes: Axes, styles: Sequence[RunStyle], dram_bytes_per_s: float) -> None:
    """Draw performance by tile width, or effective bandwidths where no run has a tile.

    Args:
        axes: Empty axes with final size.
        styles: The runs.
        dram_bytes_per_s: The DRAM's bandwidth; 0 where it is unknown.
    """
    tiled = [style for style in styles if _tile_width(style) and style.gflop_per_s]
    if tiled:
        _draw_tiles(axes, sorted(tiled, key=_tile_width))
    else:
        _draw_bandwidths(axes, styles, dram_bytes_per_s)


def _draw_tiles(axes: Axes, tiled: Sequence[RunStyle]) -> None:
    """Draw GFLOP/s over the tile width, a line per kernel at one size and provenance."""
    axes.set_title("GFLOP/s by tile width")
    widths = sorted({_tile_width(style) for style in tiled})
    lines: dict[object, list[RunStyle]] = {}
    for style in tiled:
        lines.setdefault((style.series, style.is_measured), []).append(style)
    for line in lines.values():
        points = [(widths.index(_tile_width(style)), style.gflop_per_s) for style in line]
        axes.plot(*zip(*points, strict=True), lw=1.2, zorder=2, **line[0].line)
        for (x, y), style in zip(points, line, strict=True):
            axes.plot([x], [y], marker="o", zorder=3, **style.marker)
            if style.is_wrong:
                axes.plot([x], [y], zorder=3.5, **cross_style())
    _set_rate_axis(axes, [style.gflop_per_s for style in tiled])
    axes.set_xticks(range(len(widths)), [str(width) for width in widths])
    axes.set_xlim(-0.3, len(widths) - 0.7)
    axes.set_xlabel("tile width", labelpad=4)

    last = {style.series: style for style in tiled}
    room = LEADER_INCHES[-1] + max(_name_inches(axes, series) for series in last)
    figure, box = figure_of(axes), axes.get_position()
    axes.set_position((box.x0, box.y0, box.width - room / figure.get_size_inches()[0], box.height))
    label_line_ends(
        axes,
        [(widths.index(_tile_width(style)), style.gflop_per_s) for style in last.values()],
        list(last),
        [style.line for style in last.values()],
        NAME_INCHES,
    )


def _set_rate_axis(axes: Axes, rates: Sequence[float]) -> None:
    """Set up the axis of rates; logarithmic where slow ones would be equal on a linear one."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = min(rates), max(rates)
    if high > LOG_AXIS_RATIO * low:
        axes.set(yscale="log", ylim=(low / 1.5, 1.5 * high))
        subs = (1, 2, 5) if high / low < FULLY_LABELLED_RATIO else (1,)
        axes.yaxis.set_major_locator(LogLocator(base=10.0, subs=subs))
        axes.yaxis.set_minor_locator(LogLocator(base=10.0, subs=range(2, 10)))
        axes.yaxis.set_minor_formatter(NullFormatter())  # the default would write TeX
    else:
        axes.set_ylim(0, 1.12 * high)
        axes.locator_params(axis="y", nbins=5)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(visible=True, axis="y", color="#EEEEEE", linewidth=0.8)


def _name_inches(axes: Axes, series: tuple[str, str]) -> float:
    """Measure the name of a series as `label_line_ends` writes it."""
    text = axes.text(0, 0, "", fontsize=SMALL_POINTS)
    fit_name(text, *series, NAME_INCHES)
    inches = text_inches(text)
    text.remove()
    return inches


def _draw_bandwidths(axes: Axes, styles: Sequence[RunStyle], dram_bytes_per_s: float) -> None:
    """Draw a bar per run, its effective bandwidth, and the DRAM's.

    Useful bytes read every input and write every output once, so this compares any kernel with the
    unavoidable time.
    """
    from matplotlib.colors import to_rgba

    axes.set_title("Effective bandwidth")
    rates = [effective_bytes_per_s(style.run.measurement) for style in styles]
    axes.set_xlim(0, 1.02 * (max([*rates, dram_bytes_per_s]) or 1.0))
    axes.set_ylim(max(len(styles), MIN_BARS) - 0.4, -0.6)
    axes.set_yticks([])
    axes.spines[["left"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: rate_tick_text(value, "B/s"))
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("compulsory bytes / time", labelpad=4)
    above, in_row = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    if dram_bytes_per_s:
        axes.axvline(dram_bytes_per_s, color=INK, lw=1.8, zorder=1)
        axes.text(
            dram_bytes_per_s, 1.01, "DRAM", transform=above, ha="right", fontsize=SMALL_POINTS
        )
    room = axes.bbox.width / figure_of(axes).dpi - VALUE_INCHES - 0.1
    for row, (style, rate) in enumerate(zip(styles, rates, strict=True)):
        axes.barh(
            row + 0.25,
            rate,
            height=0.24,
            facecolor=to_rgba(style.color, 0.4) if style.is_measured else BACKGROUND,
            edgecolor=style.color,
            linestyle=style.line_style,
            linewidth=1.1,
            zorder=2,
        )
        if style.is_wrong:
            axes.plot([rate], [row + 0.25], zorder=3.5, clip_on=False, **cross_style())
        # Over the DRAM's line, but their halo is under the bars.
        looks: dict[str, Any] = {
            "fontsize": SMALL_POINTS,
            "path_effects": text_halo(),
            "zorder": 1.5,
        }
        name = axes.text(0.0, row - 0.02, "", transform=in_row, **looks)
        fit_name(name, style.name, style.suffix, room)
        value = f"{'' if style.is_measured else '~'}{si_text(rate, 'B/s')}"
        axes.text(0.96, row - 0.02, value, transform=in_row, ha="right", **looks)


def _tile_width(style: RunStyle) -> int:
    return style.run.measurement.tile or 0
