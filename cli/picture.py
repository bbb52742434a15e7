"""The picture of a command and the file with its data.

Both have the same name with different extensions. Pictures of the same data in several formats
share the data file.
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
    """Check that `write_picture` can write a picture, before the work that produces it.

    Args:
        path: The picture.
        force: Whether existing files may be overwritten.
        option: The option that names the picture, for messages.
        data_suffix: Extension of the data file.
        repeatable: Whether the same command gives the same data again.

    Raises:
        UsageError: The extension is no picture format, or an error of `check_output`.
    """
    import logging
    import warnings

    from memlab.roofline.plots.figure import image_format

    # Matplotlib reports at length that it cannot write its caches to a read-only home folder.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # Characters that the font lacks are drawn as boxes; a warning does not help.
    warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
    image_format(path)
    check_output(path, force, option)
    data_path = path.with_suffix(data_suffix)
    if not (repeatable and _has_picture(data_path)):  # else `write_picture` compares the data
        check_output(data_path, force, option)


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
    """Write a figure and its data file.

    Args:
        path: The picture.
        figure: The figure.
        data: The text of the data file.
        force: Whether existing files may be overwritten.
        quiet: Whether to print no message.
        option: As in `check_picture`.
        data_suffix: As in `check_picture`.

    Raises:
        UsageError: As `check_picture`, or the disk is full.
    """
    from memlab.roofline.plots.figure import image_format, render_figure

    data_path = path.with_suffix(data_suffix)
    shared = not force and _has_picture(data_path) and _has_text(data_path, data)
    if not shared:
        check_output(data_path, force, option)  # before a picture is written without its data
    write_output(path, render_figure(figure, image_format(path)), force, option)
    if not shared:
        write_output(data_path, data, force, option)
    if not quiet:
        written = f"; its data is in {data_path}" if shared else f" and {data_path}"
        print_message(f"wrote {path}{written}")


def _has_text(path: Path, data: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == data
    except (OSError, UnicodeError):  # an unreadable file has other data
        return False


def _has_picture(data_path: Path) -> bool:
    """Return whether a data file and a picture with its name exist."""
    from memlab.roofline.plots.figure import IMAGE_FORMATS

    pictures = (data_path.with_suffix(f".{suffix}") for suffix in IMAGE_FORMATS)
    return data_path.is_file() and any(picture.is_file() for picture in pictures)
