"""`memlab compare A B`: two runs side by side, and a gate on their difference."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import memlab
from memlab.cli import gate, options
from memlab.cli.completion import complete_run
from memlab.cli.kernel_commands import EXIT_FINDING
from memlab.cli.output import check_output, deliver, json_text, print_message
from memlab.cli.picture import check_picture, write_picture
from memlab.cli.terminal_text import echo
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.roofline.comparison.records import Comparison

FORMATS = {".json": "json", ".csv": "csv", ".md": "markdown", ".html": "html", ".htm": "html"}


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
    chosen = chosen_comparison_format(as_json, as_csv, markdown, output)
    share = gate.parse_threshold(threshold)
    if output is not None:
        check_output(output, overwrite)
    if plot is not None:
        check_picture(plot, overwrite, "--plot")
    gate.check_gate_files(junit, sarif, overwrite)
    compared = memlab.compare(
        a, b, threshold=share, force=force, fail_if=fail_if or (), store=store
    )
    show_comparison(compared, chosen, output, everything, overwrite, quiet, store)
    if plot is not None:
        _draw(compared, plot, overwrite, quiet)
    gate.write_gate_files(compared, junit, sarif, overwrite, quiet)
    code = gate.print_failures(compared.conditions)
    for pair in compared.pairs:
        if pair.b.measurement.verification.status == "failed":
            print_message(f"verification failed: {pair.verdict}")
            code = EXIT_FINDING
    if code:
        raise typer.Exit(code)


def _draw(compared: "Comparison", path: Path, overwrite: bool, quiet: bool) -> None:
    from memlab.comparisons.comparing import comparison_figure
    from memlab.roofline.documents.comparison import comparison_csv

    figure, data = comparison_figure(compared), comparison_csv(compared)
    write_picture(path, figure, data, overwrite=overwrite, quiet=quiet, option="--plot")


def chosen_comparison_format(
    as_json: bool, as_csv: bool, markdown: bool, output: Path | None
) -> str:
    """Choose the format: that of the option, else of the file's extension, else the report."""
    asked = [
        name
        for name, given in (("json", as_json), ("csv", as_csv), ("markdown", markdown))
        if given
    ]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} were both given: choose one")
    if output is None or asked:
        return asked[0] if asked else "report"
    named = FORMATS.get(output.suffix.lower())
    if named is None:
        raise UsageError(
            f"cannot tell the format of {output} from its extension: use .html, .json, .csv or "
            ".md, or add --json, --csv or --markdown"
        )
    return named


def show_comparison(
    compared: "Comparison",
    chosen: str,
    output: Path | None,
    everything: bool,
    overwrite: bool,
    quiet: bool,
    store: Path | None = None,
) -> None:
    """Print or write a comparison in the chosen format."""
    if chosen == "report":
        from memlab.roofline.reports.comparison import comparison_report
        from memlab.roofline.reports.parts import console

        console().print(comparison_report(compared, everything=everything))
        return

    from memlab.roofline.documents import comparison as documents
    from memlab.roofline.documents.comparison_markdown import comparison_markdown

    if chosen == "json":
        text = json_text(documents.comparison_document(compared))
    elif chosen == "csv":
        text = documents.comparison_csv(compared)
    elif chosen == "html":
        text = memlab.report_page(compared, store=store).html
    else:
        text = comparison_markdown(compared)
        if output is None:
            echo(text, end="")
            return
    deliver(text, output, overwrite, quiet)
