"""`memlab compare A B`: two runs side by side, and a gate on their difference."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import memlab
from memlab.cli import gate, options
from memlab.cli.comparison_output import ComparisonOutput, comparison_form
from memlab.cli.completion import complete_run
from memlab.cli.picture import check_picture, write_picture

if TYPE_CHECKING:
    from memlab.roofline.comparison.records import Comparison


def compare(
    a: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="A run: its number, label or sweep, or a JSON file. [last but one]",
            autocompletion=complete_run,
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="B",
            help="The run to compare with it. [the last]",
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show what did not change, and every pair in full.")
    ] = False,
    fail_if: gate.FailIfOption = None,
    threshold: gate.ThresholdOption = gate.DEFAULT_THRESHOLD_TEXT,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Compare times in spite of other GPUs, drivers, clocks or sizes of the work.",
        ),
    ] = False,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    markdown: gate.MarkdownOption = False,
    output: gate.ComparisonOutputOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw A and B under the roof, with an arrow at each level: .png, .svg or .pdf. "
            "Its data goes to a .csv of the same name.",
        ),
    ] = None,
    junit: gate.JunitOption = None,
    sarif: gate.SarifOption = None,
    overwrite: gate.OverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
) -> None:
    """Compare two runs: machine code, counters, times, source lines.

    A run is its number, its label or a JSON file ('memlab run -o', 'memlab runs export'). A label,
    sweep or file of several runs is matched with B point by point: by kernel, parameters, device.

    A condition is NAME OPERATOR LIMIT. With a sign the limit is a change from A to B: 'time>+3%',
    'registers_per_thread>+8'. Without a sign it is B's value, such as 'local_load_sectors>0' or, of
    a share, 'fraction_of_roof<80%'; a percentage of any other figure is a change.
    """
    result = ComparisonOutput(
        comparison_form(as_json, as_csv, markdown, output),
        output,
        junit,
        sarif,
        everything,
        overwrite,
        quiet,
    )
    share = gate.parse_threshold(threshold)
    result.check()
    if plot is not None:
        check_picture(plot, overwrite, "--plot")
    compared = memlab.compare(
        a, b, threshold=share, force=force, fail_if=fail_if or (), store=store
    )
    code = result.deliver(compared, store)
    if plot is not None:
        _draw(compared, plot, overwrite, quiet)
    if code:
        raise typer.Exit(code)


def _draw(compared: "Comparison", path: Path, overwrite: bool, quiet: bool) -> None:
    from memlab.comparisons.comparing import comparison_figure
    from memlab.roofline.documents.comparison import comparison_csv

    figure, data = comparison_figure(compared), comparison_csv(compared)
    write_picture(path, figure, data, overwrite=overwrite, quiet=quiet, option="--plot")
