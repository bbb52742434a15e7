"""`memlab roofline`: the recorded runs of a device as one picture, with its data beside it."""

from pathlib import Path
from typing import Annotated

import typer

from memlab.cli import options

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
    from memlab.cli.output import check_output, write_output
    from memlab.cli.progress import progress_bar
    from memlab.roofline.plot import image_format, render

    data = output.with_suffix(".csv")
    picture_format = image_format(output)
    check_output(output, force)
    check_output(data, force)

    from memlab import lab

    with progress_bar(quiet) as progress:
        gathered = lab.roofline(device=device, store=store, progress=progress)
    write_output(output, render(gathered.figure(), picture_format), force)
    write_output(data, gathered.csv(), force)
    if not quiet:
        typer.echo(f"memlab: wrote {output} and {data}", err=True)
