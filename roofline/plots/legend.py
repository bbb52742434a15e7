"""The legend of the roofline's markers, and the table of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.plots.figure import LEFT_INCHES, RIGHT_INCHES, write_text
from memlab.roofline.plots.label_placement import fit_text
from memlab.roofline.plots.style import (
    HAIRLINE,
    INK,
    MARKERS,
    SECONDARY_INK,
    SMALL_POINTS,
    WARNING_COLOR,
    cross_style,
    marker_style,
)
from memlab.roofline.units import column_number, parameters_text, si_text, without_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from memlab.roofline.plots.style import RunStyle

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
    ("% of ceiling", RIGHT_INCHES, "right"),
)
"""Heading, position in inches from the left, alignment."""

INVALID = "invalid"
"""In place of the bound of a run that exceeds a physical limit."""

WRONG = "wrong"
"""In place of the bound of a run whose verification failed."""

CELL_INCHES = {"kernel": 1.95, "parameters": 2.6}
"""Greatest width of cells with a user's text."""


def draw_legend(figure: Figure, left: float, top: float, *, wrong: bool) -> None:
    """Explain the markers: a shape per level, hollow or filled for the time's provenance.

    Args:
        figure: Where to draw.
        left: Left edge, in inches from the figure's left.
        top: Upper edge, in inches from the figure's top.
        wrong: Whether a run has a wrong output, which is crossed out.
    """
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    # Grey, neither hollow nor filled: only the shape has a meaning.
    grey: dict[str, Any] = {"color": SECONDARY_INK, "ls": "none", "ms": 7}
    levels = [
        Line2D([], [], marker=marker, label=ceiling_label(level), **grey)
        for level, marker in MARKERS.items()
    ]
    times = [
        Line2D([], [], marker="o", label=f"{name} time", **marker_style(INK, measured))
        for name, measured in (("modelled", False), ("measured", True))
    ]
    crosses = (
        [Line2D([], [], label="wrong output", **cross_style() | {"markersize": 10.0})]
        if wrong
        else []
    )
    for handles, title, x in (
        (levels, "bytes counted at", left),
        ([*times, *crosses], "hollow or filled", left + 1.65),
    ):
        figure.legend(
            handles=handles,
            title=title,
            loc="upper left",
            bbox_to_anchor=(x / width, 1.0 - top / height),
            alignment="left",
            title_fontproperties={"weight": "bold", "size": SMALL_POINTS},
        )


def table_inches(rows: int) -> float:
    """Return the height of a table with so many rows."""
    return HEADER_INCHES + ROW_INCHES * rows


def draw_table(figure: Figure, styles: Sequence[RunStyle], top: float) -> None:
    """Write the table of runs across a figure, from so many inches below its top."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()

    def draw_line(start: float, end: float, y: float, **looks: Any) -> None:
        ends = [start / width, end / width]
        figure.add_artist(Line2D(ends, [1.0 - y / height] * 2, **looks))

    write_text(figure, 9.85, top + 0.12, "FLOP/B", ha="center", color=SECONDARY_INK)
    draw_line(8.4, 11.3, top + 0.26, color=HAIRLINE, lw=0.8)
    for heading, x, align in TABLE_COLUMNS:
        write_text(figure, x, top + 0.44, heading, ha=align, fontweight="bold")
    draw_line(LEFT_INCHES, RIGHT_INCHES, top + HEADER_INCHES - 0.02, color=SECONDARY_INK, lw=0.8)
    for row, style in enumerate(styles):
        y = top + HEADER_INCHES + ROW_INCHES * (row + 0.5)
        draw_line(0.42, 0.74, y, lw=1.2, **style.line)
        draw_line(0.58, 0.58, y, marker="o", **style.marker)
        for (heading, x, align), cell in zip(TABLE_COLUMNS, run_cells(style), strict=True):
            text = write_text(figure, x, y, cell, ha=align)
            if heading in CELL_INCHES:
                fit_text(text, CELL_INCHES[heading])
            if cell in (INVALID, WRONG):
                text.set(color=WARNING_COLOR, fontweight="bold")


def run_cells(style: RunStyle) -> tuple[str, ...]:
    """Return the table's cells of a run; a wrong output and an impossible time stand out."""
    measurement, placement = style.run.measurement, style.run.placement
    mark = "" if style.is_measured else "~"
    fraction = placement.fraction_of_ceiling
    point = style.point
    levels = (point.intensity.get(level) for level in MARKERS)
    rate = f"{point.per_s / 1e9:,.0f}" if point.per_s else "no FLOPs"
    if style.is_wrong:
        bound = WRONG
    else:
        bound = ceiling_label(placement.bound) if fraction <= 1.0 else INVALID
    return (
        " · ".join(filter(None, (measurement.kernel, style.identity))),
        parameters_text(without_lists(measurement.parameters)),
        f"{mark}{si_text(measurement.time.median_s, 's')} {measurement.time.provenance}",
        rate if point.operation == "FLOP" else f"{rate} GOP",
        *(column_number(level) if level else "–" for level in levels),
        bound,
        f"{fraction:.0%} of {placement.ceiling.upper().replace('_', ' ')}",
    )
