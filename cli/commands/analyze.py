"""`memlab analyze KERNEL`: a kernel's accesses to memory, counted and not timed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import memlab
from memlab.cli import options
from memlab.cli.kernel_commands import EXIT_FINDING, kernel_app
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    note_time_limit,
    print_message,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.kernels.user.kernel import UserKernel
    from memlab.roofline.analysis.analysis import Analysis

ANALYSIS_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}
"""Formats by a file's extension."""

AnalysisOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: HTML, JSON or CSV, by extension.",
    ),
]


def analyze_kernel(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: AnalysisOutputOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    seed: options.SeedOption = 0,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
) -> None:
    """Count one kernel, print or write the analysis, and exit with 1 if its output is wrong."""
    chosen = chosen_format(as_json, as_csv, output, ANALYSIS_FORMATS)
    if output is not None:
        check_output(output, overwrite)

    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        analysis = memlab.analyze(
            target,
            device=device,
            seed=seed,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
            **parameters,
        )
    note_time_limit(analysis.coverage, quiet)
    if chosen == "report":
        from memlab.roofline.reports.analyze import analysis_report, listing_console

        listing_console().print(analysis_report(analysis))
    else:
        deliver(_formatted_analysis(analysis, chosen), output, overwrite, quiet)
    if analysis.verification.status == "failed":
        print_message("verification failed: the counts are of a wrong program")
        raise typer.Exit(EXIT_FINDING)


def _formatted_analysis(analysis: "Analysis", chosen: str) -> str:
    if chosen == "html":
        from memlab.roofline.reports.page.analysis import listing_page

        return listing_page(analysis)
    from memlab.roofline.documents.analysis import analysis_document, lines_csv

    if chosen == "csv":
        return lines_csv(analysis)
    return json_text(analysis_document(analysis))


analyze_app = kernel_app(
    analyze_kernel,
    "memlab analyze naive",
    "Count a kernel's memory accesses, line by line; nothing is timed.",
)
