"""What explains the roofline: the legend of its markers, and the table of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.plots.label_placement import fit_text
from memlab.roofline.plots.style import (
    HAIRLINE,
    INK,
    LEVEL_NAMES,
    MARKERS,
    SECONDARY_INK,
    SMALL_POINTS,
    WARNING_COLOR,
    marker_style,
)
from memlab.roofline.units import column_number, parameters_text, si_text, without_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from memlab.device.measurement import Provenance
    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Run

HEADER_INCHES = 0.62
ROW_INCHES = 0.29
TABLE_COLUMNS = (
    ("kernel", 0.82, "left"),
    ("parameters", 2.85, "left"),
    ("time", 7.0, "right"),
    ("GFLOP/s", 8.05, "right"),
    ("requested", 9.25, "right"),
    ("L1", 9.95, "right"),
    ("L2", 10.6, "right"),
    ("DRAM", 11.3, "right"),
    ("bound", 11.6, "left"),
    ("% of roof", 13.65, "right"),
)
"""Heading, place in inches from the left, alignment."""

CELL_INCHES = {"kernel": 1.95, "parameters": 2.6}
"""Room for the cells whose length is the user's choice."""


def draw_legend(axes: Axes) -> None:
    """Explain the markers: a shape for each level, hollow or filled for the time's provenance."""
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

    axes.set_axis_off()

    def handle(provenance: Provenance) -> Line2D:
        looks = marker_style(INK, provenance)
        return Line2D([], [], marker="o", label=f"{provenance} time", **looks)

    # Grey, neither hollow nor filled: here the shape alone speaks.
    levels = [
        Line2D(
            [],
            [],
            marker=MARKERS[level],
            color=SECONDARY_INK,
            ls="none",
            ms=7,
            label=LEVEL_NAMES[level],
        )
        for level in MARKERS
    ]
    kinds = [handle("modelled"), handle("measured")]
    for handles, title, x in ((levels, "bytes counted at", 0.0), (kinds, "hollow or filled", 0.5)):
        legend = Legend(
            axes,
            handles,
            [str(each.get_label()) for each in handles],
            title=title,
            loc="upper left",
            bbox_to_anchor=(x, 1.0),
            frameon=False,
            alignment="left",
            borderpad=0,
            borderaxespad=0,
            handletextpad=0.5,
            labelspacing=0.5,
            fontsize=SMALL_POINTS,
            title_fontproperties={"weight": "bold", "size": SMALL_POINTS},
        )
        axes.add_artist(legend)


def table_inches(rows: int) -> float:
    """Give the height that the table of so many runs takes."""
    return HEADER_INCHES + ROW_INCHES * rows


def draw_table(figure: Figure, entries: Sequence[RunStyle], top_inches: float) -> None:
    """Write the table of runs across the figure, from a height in inches above its foot."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()

    def write(x: float, y: float, text: str, align: str, **looks: Any) -> Text:
        return figure.text(x / width, y / height, text, ha=align, va="center", **looks)

    def rule(x: float, until: float, y: float, color: str = HAIRLINE) -> None:
        figure.add_artist(Line2D([x / width, until / width], [y / height] * 2, color=color, lw=0.8))

    heading_y = top_inches - 0.44
    write(9.85, top_inches - 0.12, "FLOP/B", "center", color=SECONDARY_INK)
    rule(8.4, 11.3, top_inches - 0.26)
    for heading, x, align in TABLE_COLUMNS:
        write(x, heading_y, heading, align, fontweight="bold")
    rule(0.45, 13.65, top_inches - HEADER_INCHES + 0.02, SECONDARY_INK)
    for index, entry in enumerate(entries):
        y = top_inches - HEADER_INCHES - ROW_INCHES * (index + 0.5)
        ends = [0.42 / width, 0.74 / width]
        figure.add_artist(Line2D(ends, [y / height] * 2, lw=1.2, **entry.line))
        for looks in (entry.marker_gap, entry.marker):
            figure.add_artist(Line2D([0.58 / width], [y / height], marker="o", **looks))
        for (heading, x, align), cell in zip(TABLE_COLUMNS, run_cells(entry.run), strict=True):
            text = write(x, y, cell, align)
            if room := CELL_INCHES.get(heading):
                fit_text(text, room)
                if "…" in text.get_text():  # smaller rather than shorter
                    text.set(text=cell, fontsize=SMALL_POINTS)
                    fit_text(text, room)
            if heading == "bound" and entry.run.placement.fraction_of_ceiling > 1.0:
                text.set(color=WARNING_COLOR, fontweight="bold")


def run_cells(run: Run) -> tuple[str, ...]:
    """Write a run as the table's cells; what exceeds a physical limit is called invalid."""
    measurement, placement = run.measurement, run.placement
    mark = "" if measurement.time.provenance == "measured" else "~"
    fraction = placement.fraction_of_ceiling
    levels = (placement.intensity_flop_per_byte.get(level) for level in MARKERS)
    return (
        measurement.kernel,
        parameters_text(without_lists(measurement.parameters)),
        f"{mark}{si_text(measurement.time.median_s, 's')} {measurement.time.provenance}",
        f"{_gflop_per_s(run):,.0f}" if placement.flop_per_s else "no FLOPs",
        *(column_number(level) if level else "–" for level in levels),
        ceiling_label(placement.bound) if fraction <= 1.0 else "invalid",
        f"{fraction:.0%} of {'L1' if placement.ceiling == 'l1' else placement.ceiling.upper()}",
    )


def _gflop_per_s(run: Run) -> float:
    return run.placement.flop_per_s / 1e9
