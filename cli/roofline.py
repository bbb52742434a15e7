"""`memlab roofline`: the recorded runs of a device as one picture, with its data beside it."""

from pathlib import Path
from typing import Annotated

import typer

from memlab.cli import options
from memlab.cli.output import salvage
from memlab.cli.picture import check_picture, write_picture
from memlab.cli.progress import progress_bar

DEFAULT_PICTURE = Path("roofline.png")


def roofline(
    device: options.Device = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The picture: .png, .svg or .pdf. Its data goes beside it as .csv.",
        ),
    ] = DEFAULT_PICTURE,
    force: options.Force = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
) -> None:
    """Draw the recorded runs of a device under its roofs; with none, run the ladder first."""
    check_picture(output, force)

    from memlab import lab

    with progress_bar(quiet) as progress:
        gathered, code = salvage(
            lambda: lab.roofline(device=device, store=store, progress=progress)
        )
    write_picture(output, gathered.figure(), gathered.csv(), force=force, quiet=quiet)
    if code:
        raise typer.Exit(code)
