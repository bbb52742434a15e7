"""`memlab analyze KERNEL`: what its counts say of its use of memory; nothing is timed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memlab.cli import options
from memlab.cli.run import EXIT_FINDING, kernel_group
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.roofline.analysis import Analysis

Format = Literal["report", "json", "csv", "html"]

FORMATS: dict[str, Format] = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}
"""What a file's extension asks for."""

Page = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: HTML, JSON or CSV, by extension.",
    ),
]


def analyze_kernel(
    name: str,
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.Device = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
    output: Page = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Count one kernel, print or write what that says, and leave with 1 if its output is wrong."""
    chosen = _format(as_json, as_csv, output)
    if output is not None:
        from memlab.cli.output import check_output

        check_output(output, force)

    from memlab import lab
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        analysis = lab.analyze(name, parameters, device=device, progress=progress)
    if output is None and chosen == "report":
        from memlab.cli.analyze_report import listing_console, report

        listing_console().print(report(analysis))
    elif output is None:
        typer.echo(_text(analysis, chosen), nl=False)
    else:
        from memlab.cli.output import write_output

        write_output(output, _text(analysis, chosen), force)
        if not quiet:
            typer.echo(f"memlab: wrote {output}", err=True)
    if analysis.verification.status == "failed":
        typer.echo("memlab: verification failed: the counts are of a wrong program", err=True)
        raise typer.Exit(EXIT_FINDING)


def _format(as_json: bool, as_csv: bool, output: Path | None) -> Format:
    """Decide what to write: the option, else the file's extension, else the report.

    Raises:
        UsageError: Both formats were asked for, or the extension names none.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv were both given: choose one")
    if as_json or as_csv:
        return "json" if as_json else "csv"
    if output is None:
        return "report"
    if output.suffix.lower() not in FORMATS:
        raise UsageError(
            f"cannot tell the format of {output} from its extension: use .html, .json or .csv"
        )
    return FORMATS[output.suffix.lower()]


def _text(analysis: "Analysis", chosen: Format) -> str:
    if chosen == "html":
        from memlab.roofline.listing_html import page

        return page(analysis)
    from memlab.roofline.analysis_document import document, lines_csv

    if chosen == "csv":
        return lines_csv(analysis)
    import json

    return json.dumps(document(analysis), indent=2) + "\n"


analyze_app = typer.Typer(
    cls=kernel_group(analyze_kernel),
    invoke_without_command=True,
    rich_markup_mode=None,
    subcommand_metavar="KERNEL [OPTIONS]",
)


@analyze_app.callback()
def analyze(context: typer.Context) -> None:
    """Say what a kernel asks of memory, line by line; nothing is timed."""
    if context.invoked_subcommand is None:
        raise UsageError(
            "which kernel? for example 'memlab analyze naive'; see 'memlab analyze --help'"
        )
