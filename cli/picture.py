"""The picture of a command and the file with its data.

Both have the same name with different extensions. What memlab made itself is replaced; any other
file of their names stays, unless `--overwrite` is given.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memlab.cli.output import check_output, print_message, write_output

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

MAX_READ_BYTES = 64 << 20
"""Longer files are not memlab's: a picture has at most a few megabytes."""


def check_picture(
    path: Path, overwrite: bool, option: str = "--output", data_suffix: str = ".csv"
) -> None:
    """Check that `write_picture` can write a picture, before the work that produces it.

    Args:
        path: The picture.
        overwrite: Whether other files may be replaced. Where a report is printed before the picture
            is written, True leaves existing files to `write_picture`.
        option: The option that names the picture, for messages.
        data_suffix: Extension of the data file.

    Raises:
        UsageError: The extension is no picture format, or an error of `check_output`.
    """
    import logging
    import warnings

    from memlab.roofline.plots.figure import IMAGE_FORMATS, image_format

    # Matplotlib reports at length that it cannot write its caches to a read-only home folder.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # Characters that the font lacks are drawn as boxes; a warning does not help.
    warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
    image_format(path)
    check_output(path, overwrite or _is_own_picture(path), option)
    data_path = path.with_suffix(data_suffix)
    # What the file must hold to be memlab's is known when the data is.
    pictures = (path.with_suffix(f".{suffix}") for suffix in IMAGE_FORMATS)
    check_output(data_path, overwrite or any(map(_is_own_picture, pictures)), option)


def write_picture(
    path: Path,
    figure: Figure,
    data: str,
    *,
    overwrite: bool,
    quiet: bool,
    option: str = "--output",
    data_suffix: str = ".csv",
) -> None:
    """Write a figure and its data file.

    Args:
        path: The picture.
        figure: The figure.
        data: The text of the data file.
        overwrite: Whether files that memlab did not make may be replaced.
        quiet: Whether to print no message.
        option: As in `check_picture`.
        data_suffix: As in `check_picture`.

    Raises:
        UsageError: As `check_picture`, or the disk is full.
    """
    from memlab.roofline.plots.figure import image_format, render_figure

    data_path = path.with_suffix(data_suffix)
    overwrite_data = overwrite or _is_own_data(data_path, data)
    check_output(data_path, overwrite_data, option)  # before a picture is written without its data
    picture = render_figure(figure, image_format(path))
    write_output(path, picture, overwrite or _is_own_picture(path), option)
    write_output(data_path, data, overwrite_data, option)
    if not quiet:
        print_message(f"wrote {path} and {data_path}")


def _is_own_picture(path: Path) -> bool:
    """Whether this is a picture that memlab made."""
    from memlab.roofline.plots.figure import is_memlab_picture

    return is_memlab_picture(_content(path))


def _is_own_data(path: Path, data: str) -> bool:
    """Whether a file has the form of this data: the header of a CSV, the keys of JSON."""
    there = _content(path).decode(errors="replace")
    if path.suffix != ".json":
        return there.partition("\n")[0] == data.partition("\n")[0]
    try:
        return set(json.loads(there)) == set(json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return False


def _content(path: Path) -> bytes:
    """Read a file; empty where there is none, or it cannot be memlab's."""
    try:
        if path.is_file() and path.stat().st_size <= MAX_READ_BYTES:
            return path.read_bytes()
    except OSError:
        pass
    return b""
