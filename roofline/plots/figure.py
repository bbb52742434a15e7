"""Figures and their files: what all pictures have in common.

Matplotlib is used through its objects alone, never through pyplot, so that drawing changes no
global state and the same data gives the same bytes.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.roofline.plots.label_placement import fit_text, text_inches
from memlab.roofline.plots.style import (
    BACKGROUND,
    CHART_SETTINGS,
    DOTS_PER_INCH,
    MATPLOTLIB_SETTINGS,
    SECONDARY_INK,
    SMALL_POINTS,
)
from memlab.roofline.units import si_text
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

MAKER = "memlab"
"""The name that a picture's metadata gives as that of its program."""

MAKER_MARKS = {
    b"\x89PNG\r\n\x1a\n": rb"tEXtSoftware\0memlab",
    b"<?xml": rb"<dc:creator>\s*<cc:Agent>\s*<dc:title>memlab</dc:title>",
    b"%PDF-": rb"/Creator \(memlab\)",
}
"""Its place in each format, as a pattern, by the first bytes of the file."""

IMAGE_FORMATS = ("png", "svg", "pdf")
"""File formats of a picture."""

WIDTH_INCHES = 14.0
LEFT_INCHES, RIGHT_INCHES = 0.45, 13.65
"""Where texts across a figure start and end."""

NOTE_INCHES = 0.22
"""Distance of two lines of notes."""

FULL_WIDTH_INCHES = RIGHT_INCHES - LEFT_INCHES


@contextmanager
def new_figure(height_inches: float, title: str, right: str = "") -> Iterator[Figure]:
    """Make a figure with a title; Matplotlib's settings hold inside of the `with` statement.

    Args:
        height_inches: Its height; its width is `WIDTH_INCHES`.
        title: Shortened where it does not fit.
        right: A text at the right end of the title's line.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from memlab.roofline.plots.picture import Picture

    with matplotlib.rc_context(CHART_SETTINGS):
        size = (WIDTH_INCHES, height_inches)
        figure = Picture(figsize=size, dpi=DOTS_PER_INCH, facecolor=BACKGROUND)
        FigureCanvasAgg(figure)
        text = write_text(figure, LEFT_INCHES, 0.5, title, fontsize=20, fontweight="bold")
        taken = 0.0
        if right:
            other = write_text(figure, RIGHT_INCHES, 0.5, right, ha="right", color=SECONDARY_INK)
            taken = max(4.0, text_inches(other) + 0.4)
        fit_text(text, FULL_WIDTH_INCHES - taken)
        yield figure


def write_text(figure: Figure, left: float, top: float, text: str, **looks: Any) -> Text:
    """Write a text on a figure, its anchor in inches from the left and its middle from the top."""
    width, height = figure.get_size_inches()
    return figure.text(left / width, 1.0 - top / height, text, va="center", **looks)


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes whose top left corner and size are in inches from the figure's top left corner."""
    wide, high = figure.get_size_inches()
    return figure.add_axes((left / wide, 1.0 - (top + height) / high, width / wide, height / high))


def rate_tick_text(rate: float, unit: str = "") -> str:
    """Write a rate at an axis: `10 T`, `2 TB/s`."""
    number, _, prefixed = si_text(rate, unit).partition(" ")
    return f"{float(number):g} {prefixed}" if rate else "0"


def write_notes(figure: Figure, notes: Sequence[str]) -> None:
    """Write lines at the foot of a figure."""
    foot = figure.get_size_inches()[1] - 0.25
    for rank, note in enumerate(reversed(notes)):
        looks = {"fontsize": SMALL_POINTS, "color": SECONDARY_INK}
        text = write_text(figure, LEFT_INCHES, foot - NOTE_INCHES * rank, note, **looks)
        fit_text(text, FULL_WIDTH_INCHES)


def image_format(path: Path) -> str:
    """Return the format of a picture from its file's extension.

    Raises:
        UsageError: There is none, or it is not in `IMAGE_FORMATS`.
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
    """Return the bytes of a figure's file, the same bytes for the same figure.

    Raises:
        UsageError: The format is not in `IMAGE_FORMATS`.
    """
    import matplotlib
    from matplotlib.text import Text

    if image_format not in IMAGE_FORMATS:
        raise UsageError(f"a picture cannot be saved as {image_format!r}: use png, svg or pdf")
    undated: dict[str, dict[str, str | None]] = {
        "png": {"Software": MAKER},
        "svg": {"Creator": MAKER, "Date": None},
        "pdf": {"Creator": MAKER, "CreationDate": None},
    }
    for text in figure.findobj(Text):  # XML has no control characters
        text.set_text(printable(text.get_text(), but="\n"))
    data = io.BytesIO()
    settings = MATPLOTLIB_SETTINGS | {"svg.hashsalt": "memlab", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings):
        figure.savefig(
            data,
            format=image_format,
            dpi=DOTS_PER_INCH,
            facecolor=BACKGROUND,
            metadata=undated[image_format],
        )
    return data.getvalue()


def is_memlab_picture(content: bytes) -> bool:
    """Whether the content of a file is a picture that `render_figure` made."""
    return any(
        content.startswith(head) and re.search(mark, content) for head, mark in MAKER_MARKS.items()
    )
