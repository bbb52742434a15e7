"""`memlab analyze KERNEL`: what its counts say of its use of memory; nothing is timed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli import options
from memlab.cli.kernel_commands import EXIT_FINDING, kernel_app
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    note_time_limit,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.kernels.user.kernel import OwnKernel
    from memlab.roofline.analysis.analysis import Analysis

FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}
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
    target: "str | OwnKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.Device = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
    output: Page = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    seed: options.Seed = 0,
    timeout: options.Timeout = None,
    memory_limit: options.MemoryLimit = None,
) -> None:
    """Count one kernel, print or write what that says, and leave with 1 if its output is wrong."""
    chosen = chosen_format(as_json, as_csv, output, FORMATS)
    if output is not None:
        check_output(output, force)

    from memlab import lab
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        analysis = lab.analyze(
            target,
            parameters,
            device=device,
            seed=seed,
            progress=progress,
            timeout_s=timeout,
            memory_bytes=memory_limit,
        )
    note_time_limit(analysis.coverage, quiet)
    if chosen == "report":
        from memlab.roofline.reports.analyze import listing_console, report

        listing_console().print(report(analysis))
    else:
        deliver(_text(analysis, chosen), output, force, quiet)
    if analysis.verification.status == "failed":
        say("verification failed: the counts are of a wrong program")
        raise typer.Exit(EXIT_FINDING)


def _text(analysis: "Analysis", chosen: str) -> str:
    if chosen == "html":
        from memlab.roofline.reports.listing_html import page

        return page(analysis)
    from memlab.roofline.documents.analysis import document, lines_csv

    if chosen == "csv":
        return lines_csv(analysis)
    return json_text(document(analysis))


analyze_app = kernel_app(
    analyze_kernel,
    "memlab analyze naive",
    "Say what a kernel asks of memory, line by line; nothing is timed.",
)
