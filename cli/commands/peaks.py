"""`memlab peaks`: the ceilings and latencies of this GPU, measured and kept for rooflines."""

from pathlib import Path
from typing import Annotated

import typer

import memlab
from memlab.cli import options
from memlab.cli.output import json_text, partial_result
from memlab.cli.picture import check_picture, write_picture
from memlab.cli.progress import progress_bar


def peaks(
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Draw bandwidth and latency by footprint: .png, .svg or .pdf. "
            "The figures go to a .json of the same name.",
        ),
    ] = None,
    overwrite: options.PictureOverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Do not store the figures.")] = False,
) -> None:
    """Measure a GPU's ceilings and latencies; later rooflines on it draw them."""
    if output is not None:
        # The report comes before an existing file.
        check_picture(output, overwrite=True, data_suffix=".json")

    from memlab.roofline.documents.peaks import peaks_document

    with progress_bar(quiet) as progress:
        measured, code = partial_result(
            lambda: memlab.peaks(device=device, store=store, keep=not no_store, progress=progress)
        )
    text = json_text(peaks_document(measured))
    if as_json:
        typer.echo(text, nl=False)
    else:
        from memlab.roofline.reports.parts import console
        from memlab.roofline.reports.peaks import peaks_report

        console().print(peaks_report(measured))
    if output is not None:
        from memlab.roofline.plots.peaks import draw_peaks

        write_picture(
            output,
            draw_peaks(measured),
            text,
            overwrite=overwrite,
            quiet=quiet,
            data_suffix=".json",
        )
    if code:
        raise typer.Exit(code)
