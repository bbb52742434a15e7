"""A picture that a command draws, with its data in a file beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.cli.output import check_output, say, write_output

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure


def check_picture(
    path: Path, force: bool, option: str = "--output", data_suffix: str = ".csv"
) -> None:
    """Refuse what `write_picture` could not write, before the work that fills it.

    Args:
        path: The picture.
        force: Whether files that exist may be overwritten.
        option: What the picture was asked for with, for messages.
        data_suffix: Extension of the file with its data.

    Raises:
        UsageError: The extension names no format of pictures, or as `check_output`.
    """
    import logging
    import warnings

    from memlab.roofline.plot import image_format

    # Where the home folder is read-only matplotlib would tell of its own caches at length.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # A name in a script that the font lacks is drawn as boxes; no message makes it better.
    warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
    image_format(path)
    check_output(path, force, option)
    check_output(path.with_suffix(data_suffix), force, option)


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
    from memlab.roofline.plot import image_format, render

    beside = path.with_suffix(data_suffix)
    write_output(path, render(figure, image_format(path)), force, option)
    write_output(beside, data, force, option)
    if not quiet:
        say(f"wrote {path} and {beside}")
