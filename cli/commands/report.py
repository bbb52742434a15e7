"""`memlab report`: runs as one HTML page, with an interactive roofline."""

from pathlib import Path
from typing import Annotated

import typer

import memlab
from memlab.cli import options
from memlab.cli.completion import complete_run
from memlab.cli.output import check_output, partial_result, print_message, write_output
from memlab.cli.run_filters import (
    DeviceFilter,
    KernelFilter,
    LabelFilter,
    LastFilter,
    SinceFilter,
)
from memlab.errors import UsageError
from memlab.text import plural

DEFAULT_PAGE = Path("report.html")
PAGE_SUFFIXES = (".html", ".htm")

PAGE_MARK = '<meta name="generator" content="memlab">'
PAGE_HEAD_BYTES = 4096
"""Where the mark of memlab's pages stands."""

RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUNS",
        autocompletion=complete_run,
        help="Runs: numbers, labels, sweeps or JSON files. "
        "[default: of the stored ones, the newest of each kernel, parameters and device]",
    ),
]
PageOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The page, .html.")
]
TitleOption = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="The title of the page.")
]


def report(
    runs: RunsArgument = None,
    output: PageOption = DEFAULT_PAGE,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    title: TitleOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
) -> None:
    """Write runs as one HTML page: an interactive roofline, figures, source and advice.

    The page needs neither a network nor another file. A report.html that memlab made is replaced.
    """
    if output.suffix.lower() not in PAGE_SUFFIXES:
        raise UsageError(f"a report is an HTML page, got {output}: use a name that ends in .html")
    overwrite = overwrite or (output == DEFAULT_PAGE and _is_own_page(output))
    check_output(output, overwrite)
    page, code = partial_result(
        lambda: memlab.report_page(
            *runs or (),
            device=device,
            kernel=kernel,
            label=label,
            since=since,
            last=last,
            title=title,
            store=store,
        )
    )
    write_output(output, page.html, overwrite)
    if not quiet:
        count = len(page.runs)
        print_message(f"wrote {output}: {count} {plural(count, 'run')}")
        if page.left_out:
            print_message(
                f"{page.left_out} older {plural(page.left_out, 'run')} left out: name runs to "
                "choose others"
            )
    if code:
        raise typer.Exit(code)


def _is_own_page(path: Path) -> bool:
    """Whether a file is a page that memlab made, by its head."""
    try:
        with path.open("rb") as file:
            return PAGE_MARK.encode() in file.read(PAGE_HEAD_BYTES)
    except OSError:
        return False
