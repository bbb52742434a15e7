"""A picture that a command draws, with its data in a file beside it.

Pictures in several formats share that file, as long as they have the same data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.cli.output import check_output, print_message, write_output

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure


def check_picture(
    path: Path,
    force: bool,
    option: str = "--output",
    data_suffix: str = ".csv",
    *,
    repeatable: bool = True,
) -> None:
    """Refuse what `write_picture` could not write, before the work that fills it.

    Args:
        path: The picture.
        force: Whether files that exist may be overwritten.
        option: What the picture was asked for with, for messages.
        data_suffix: Extension of the file with its data.
        repeatable: Whether the same command gives the same data again.

    Raises:
        UsageError: The extension names no format of pictures, or as `check_output`.
    """
    import logging
    import warnings

    from memlab.roofline.plots.figure import image_format

    # Where the home folder is read-only matplotlib would tell of its own caches at length.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # A name in a script that the font lacks is drawn as boxes; no message makes it better.
    warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
    image_format(path)
    check_output(path, force, option)
    beside = path.with_suffix(data_suffix)
    if not (repeatable and _has_other_picture(beside)):  # else its data will tell
        check_output(beside, force, option)


def write_picture(
    path: Path,
    figure: Figure,
    data: str,
    *,
    force: bool,
    quiet: bool,
    option: str = "--output",
    data_suffix: str = ".csv",
) -> None:
    """Write a figure, and its data beside it.

    Args:
        path: The picture.
        figure: What it shows.
        data: What the file beside it holds.
        force: Whether files that exist may be overwritten.
        quiet: Whether to say nothing of it.
        option: As in `check_picture`.
        data_suffix: As in `check_picture`.

    Raises:
        UsageError: As `check_picture`, or the disk is full.
    """
    from memlab.roofline.plots.figure import image_format, render_figure

    beside = path.with_suffix(data_suffix)
    shared = not force and _has_other_picture(beside) and _has_text(beside, data)
    if not shared:
        check_output(beside, force, option)  # before the picture, which would lack its data
    write_output(path, render_figure(figure, image_format(path)), force, option)
    if not shared:
        write_output(beside, data, force, option)
    if not quiet:
        print_message(
            f"wrote {path}; its data is in {beside}" if shared else f"wrote {path} and {beside}"
        )


def _has_text(path: Path, data: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == data
    except (OSError, UnicodeError):  # what cannot be read is not what would be written
        return False


def _has_other_picture(beside: Path) -> bool:
    """Whether a file with data lies beside a picture already."""
    from memlab.roofline.plots.figure import IMAGE_FORMATS

    return beside.is_file() and any(
        beside.with_suffix(f".{each}").is_file() for each in IMAGE_FORMATS
    )
