"""`memlab calibrate`: this GPU's datasheet, measured, with which any machine can emulate it."""

from pathlib import Path
from typing import Annotated

import typer

import memlab
from memlab.cli import options
from memlab.cli.output import check_output, deliver, print_json, print_message
from memlab.cli.progress import progress_bar
from memlab.cli.terminal_text import echo
from memlab.errors import UsageError

EXIT_PART_FAILED = 1


def calibrate(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The datasheet to write, a .toml."),
    ],
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="FILE", help="Also write the raw samples, as CSV."),
    ] = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Measure a GPU's datasheet in a few minutes; '--device FILE' then emulates it anywhere.

    The exit code is 1 if a micro-benchmark failed; FILE then lacks its figures.
    """
    from memlab.device.datasheets.loader import is_datasheet_path
    from memlab.roofline.documents.calibration import calibration_document, samples_csv

    if not is_datasheet_path(str(output)):
        raise UsageError(f"a datasheet's file ends in .toml, got {output}: use -o my-gpu.toml")
    for file in (output, samples):
        if file is not None:
            check_output(file, overwrite)
    with progress_bar(quiet) as progress:
        calibration = memlab.calibrate(device, progress=progress)
    deliver(calibration.datasheet(), output, overwrite, quiet)
    if samples is not None:
        deliver(samples_csv(calibration), samples, overwrite, quiet)
    for failure in calibration.failures:
        print_message(f"not measured: {failure.benchmark}: {failure.reason}")
    if as_json:
        print_json(calibration_document(calibration))
    else:
        echo(
            f"{calibration.properties.name}: {len(calibration.measured)} figures measured in "
            f"{calibration.duration_s:.0f} s; use them with --device {output}"
        )
    if calibration.failures:
        raise typer.Exit(EXIT_PART_FAILED)
