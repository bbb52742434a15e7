"""`--save NAME=FILE.npy`: the outputs of a launch in files of NumPy's format."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli.output import check_output, print_message, write_output
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.device.outputs import Outputs

SaveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--save",
        metavar="NAME=FILE.npy",
        help="Write an output of your own kernel to a file in NumPy's format; may be repeated.",
    ),
]


def parse_saves(texts: Sequence[str], overwrite: bool, is_own: bool) -> dict[str, Path]:
    """Read the options `--save`: the files by the outputs' names.

    Args:
        texts: `NAME=FILE.npy`.
        overwrite: Whether existing files may be overwritten.
        is_own: Whether the kernel is the user's own.

    Raises:
        UsageError: One is malformed, its file cannot be written, or the kernel is memlab's.
    """
    files = {}
    for text in texts:
        name, _, file = (part.strip() for part in text.partition("="))
        if not name or not file.endswith(".npy"):
            raise UsageError(f"--save {text!r} is not NAME=FILE.npy: write --save y=y.npy")
        if not is_own:
            raise UsageError(
                f"--save {text!r}: memlab gives back the outputs of your own kernels, not of the "
                "catalog's: leave --save out"
            )
        files[name] = Path(file)
        check_output(files[name], overwrite, "--save")
    return files


def save_outputs(outputs: Outputs, files: Mapping[str, Path], overwrite: bool, quiet: bool) -> None:
    """Write outputs to files.

    Raises:
        UsageError: There is no such output, not all blocks ran, or a file cannot be written.
    """
    import numpy as np

    for name, path in files.items():
        values = outputs[name]
        if np.ma.isMaskedArray(values) and values.mask.any():
            raise UsageError(
                f"{path} is not written: the blocks that ran wrote "
                f"{values.count():,} of {values.size:,} elements of {name}: use fewer blocks, or a "
                "GPU"
            )
        content = io.BytesIO()
        np.save(content, np.ma.getdata(values), allow_pickle=False)
        write_output(path, content.getvalue(), overwrite, "--save")
        if not quiet:
            print_message(f"wrote {path}")
