"""`memlab sass KERNEL`: the machine code beside the PTX and the source, with its counts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import memlab
from memlab.cli import options
from memlab.cli.kernel_commands import kernel_app
from memlab.cli.output import check_output, chosen_format, deliver, json_text, note_time_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.machine_code.listing import MachineListing
    from memlab.kernels.user.kernel import UserKernel

SASS_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}
"""Formats by a file's extension."""

SassOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: HTML, JSON or CSV, by extension.",
    ),
]


def list_machine_code(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: SassOutputOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    seed: options.SeedOption = 0,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
) -> None:
    """Execute one kernel, and print or write its machine code."""
    chosen = chosen_format(as_json, as_csv, output, SASS_FORMATS)
    if output is not None:
        check_output(output, overwrite)

    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        listing = memlab.sass(
            target,
            device=device,
            seed=seed,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
            **parameters,
        )
    note_time_limit(listing.coverage, quiet)
    if chosen == "report":
        from memlab.roofline.reports.parts import console
        from memlab.roofline.reports.sass import SASS_COLUMNS, sass_report

        console(SASS_COLUMNS).print(sass_report(listing))
        return
    deliver(_formatted_listing(listing, chosen), output, overwrite, quiet)


def _formatted_listing(listing: "MachineListing", chosen: str) -> str:
    if chosen == "html":
        from memlab.roofline.reports.page.machine_code import machine_code_page

        return machine_code_page(listing)
    from memlab.roofline.documents.sass import sass_csv, sass_document

    return sass_csv(listing) if chosen == "csv" else json_text(sass_document(listing))


sass_app = kernel_app(
    list_machine_code,
    "memlab sass naive",
    "Show a kernel's machine code beside its PTX and source, with the executions of each line.",
)
