"""The picture: a roofline with its kernels, a panel beside it and a table, as a figure.

Matplotlib is used through its objects alone, never through pyplot, so that drawing changes no
global state and the same runs give the same bytes.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.roofline.ceilings import ceilings_by_key
from memlab.roofline.plots.axes import draw_chart, is_on_chart
from memlab.roofline.plots.label_placement import fit_text
from memlab.roofline.plots.legend import draw_legend, draw_table, table_inches
from memlab.roofline.plots.side_panel import draw_side_panel
from memlab.roofline.plots.style import (
    DOTS_PER_INCH,
    MATPLOTLIB_SETTINGS,
    SECONDARY_INK,
    SMALL_POINTS,
    run_styles,
)
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Ceiling, Run

IMAGE_FORMATS = ("png", "svg", "pdf")
"""What a picture can be saved as."""

MAX_RUNS = 12
"""More kernels than these no one can tell apart; the newest are drawn and the rest counted."""

ROOFLINE_NOTE = (
    "Read each point under the roof of its own level; requested bytes have none, caches serve part "
    "of them. Dots lead to the kernel's lowest roof, which % of roof is of."
)

WIDTH_INCHES = 14.0
CHART_TOP_INCHES = 0.95
CHART_INCHES = (7.3, 4.7)
ABOVE_TABLE_INCHES = CHART_TOP_INCHES + CHART_INCHES[1] + 0.75
FOOT_INCHES = 0.3
NOTE_INCHES = 0.22


def draw_roofline(
    runs: Sequence[Run],
    ceilings: Sequence[Ceiling],
    device_name: str,
    date: str,
    measured: Sequence[Ceiling] = (),
) -> Figure:
    """Draw runs of one device under its roofs.

    Args:
        runs: Oldest first. Of runs alike in kernel, parameters and provenance the newest is drawn.
        ceilings: The device's ceilings; they alone decide the axes.
        device_name: For the title.
        date: For the title, as it shall read.
        measured: What micro-benchmarks reached of the ceilings, drawn beside them.

    Returns:
        A figure of 14 inches by about 8.5, higher with more than five runs.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from memlab.roofline.plots.picture import Picture

    distinct = _newest_distinct_runs(runs)
    shown = run_styles(distinct[-MAX_RUNS:])
    notes = _note_lines(shown, ceilings, older=len(distinct) - len(shown))
    height = ABOVE_TABLE_INCHES + table_inches(len(shown)) + FOOT_INCHES + NOTE_INCHES * len(notes)
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Picture(figsize=(WIDTH_INCHES, height), dpi=DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)

        def box(
            left: float, top: float, width: float, tall: float
        ) -> tuple[float, float, float, float]:
            """Inches from the top left corner to matplotlib's fractions from the foot."""
            return (
                left / WIDTH_INCHES,
                1.0 - (top + tall) / height,
                width / WIDTH_INCHES,
                tall / height,
            )

        _write_title(figure, [entry.run for entry in shown], device_name, date)
        chart = figure.add_axes(box(0.95, CHART_TOP_INCHES, *CHART_INCHES))
        draw_chart(chart, shown, ceilings, measured)
        beside = figure.add_axes(box(11.1, CHART_TOP_INCHES + 0.2, 2.55, 2.45))
        dram = ceilings_by_key(ceilings).get("dram")
        draw_side_panel(beside, shown, dram.value if dram else 0.0)
        draw_legend(figure.add_axes(box(10.4, CHART_TOP_INCHES + 3.5, 3.3, 1.3)))
        draw_table(figure, shown, height - ABOVE_TABLE_INCHES)
        for rank, note in enumerate(reversed(notes)):
            y = (0.2 + NOTE_INCHES * rank) / height
            text = figure.text(
                0.45 / WIDTH_INCHES, y, note, fontsize=SMALL_POINTS, color=SECONDARY_INK
            )
            fit_text(text, 13.2)
    return figure


def image_format(path: Path) -> str:
    """Tell the format from a file's extension.

    Raises:
        UsageError: There is none, or it is none of `FORMATS`.
    """
    name = path.suffix.lower().removeprefix(".")
    if not name:
        raise UsageError(
            f"cannot tell the format of {path} from its extension: use .png, .svg or .pdf"
        )
    if name not in IMAGE_FORMATS:
        raise UsageError(f"a picture cannot be saved as {name!r} ({path}): use .png, .svg or .pdf")
    return name


def render_figure(figure: Figure, image_format: str) -> bytes:
    """Give a figure as the bytes of a file, the same for the same figure.

    Raises:
        UsageError: The format is none of `FORMATS`.
    """
    import matplotlib
    from matplotlib.text import Text

    if image_format not in IMAGE_FORMATS:
        raise UsageError(f"a picture cannot be saved as {image_format!r}: use png, svg or pdf")
    timeless = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    for text in figure.findobj(Text):  # XML has no control characters
        text.set_text(printable(text.get_text(), but="\n"))
    data = io.BytesIO()
    with matplotlib.rc_context(
        MATPLOTLIB_SETTINGS | {"svg.hashsalt": "memlab", "pdf.fonttype": 42}
    ):
        figure.savefig(
            data,
            format=image_format,
            dpi=DOTS_PER_INCH,
            facecolor="white",
            metadata=timeless[image_format],
        )
    return data.getvalue()


def _newest_distinct_runs(runs: Sequence[Run]) -> list[Run]:
    newest: dict[object, Run] = {}
    for run in runs:
        measurement = run.measurement
        key = (
            measurement.kernel,
            tuple(measurement.parameters.items()),
            measurement.time.provenance,
        )
        newest.pop(key, None)
        newest[key] = run
    return list(newest.values())


def _write_title(figure: Figure, runs: Sequence[Run], device_name: str, date: str) -> None:
    height = figure.get_size_inches()[1]
    provenances = sorted({run.measurement.time.provenance for run in runs})
    times = f"times {' and '.join(provenances)}  ·  " if provenances else ""
    figure.text(
        0.45 / WIDTH_INCHES,
        1.0 - 0.5 / height,
        f"Roofline of {device_name}",
        fontsize=20,
        fontweight="bold",
        va="center",
    )
    figure.text(
        13.65 / WIDTH_INCHES,
        1.0 - 0.5 / height,
        f"{times}{date}",
        ha="right",
        va="center",
        color=SECONDARY_INK,
    )


def _note_lines(shown: Sequence[RunStyle], ceilings: Sequence[Ceiling], older: int) -> list[str]:
    """Say under the table how to read the chart and what is missing from it, a line each."""
    notes = [ROOFLINE_NOTE] if shown else []
    off_chart = [entry.label for entry in shown if not is_on_chart(entry, ceilings)]
    if off_chart:
        notes.append(f"Not on the chart (no FLOPs, or beyond its axes): {', '.join(off_chart)}.")
    if older:
        notes.append(f"Only the newest {len(shown)} runs are drawn: {older} older not.")
    return notes
