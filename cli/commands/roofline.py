"""`memlab roofline`: a picture of a device's stored runs, with a file of its data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlab.cli import options
from memlab.cli.completion import complete_run
from memlab.cli.kernel_commands import EXIT_FINDING, optional_kernel_app
from memlab.cli.output import note_time_limit, partial_result, print_message
from memlab.cli.picture import check_picture, write_picture
from memlab.cli.progress import progress_bar
from memlab.cli.run_filters import (
    KernelFilter,
    LabelFilter,
    LastFilter,
    SinceFilter,
    conditions_text,
)
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.kernels.user.kernel import UserKernel

DEFAULT_PICTURE = Path("roofline.png")

RooflineOutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The picture: .png, .svg or .pdf. Its data goes to a .csv of the same name.",
    ),
]


RunOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="RUN",
        help="Draw this run: its number, its label or a JSON file; repeat it for more.",
        autocompletion=complete_run,
    ),
]
TitleOption = Annotated[
    str, typer.Option("--title", metavar="TEXT", help="The title. [default: the device's name]")
]


def roofline_with_kernel(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.DeviceOption = None,
    run: RunOption = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    title: TitleOption = "",
    output: RooflineOutputOption = DEFAULT_PICTURE,
    overwrite: options.PictureOverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
    seed: options.SeedOption = 0,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
) -> None:
    """Run one kernel, store the run, and draw it with those stored before."""
    filters = {"kernel": kernel, "label": label, "since": since, "last": last}
    limits = {"timeout_s": timeout, "memory_bytes": memory_limit}
    how = {"device": device, "title": title, "store": store, "seed": seed, **limits}
    _draw_roofline((target, parameters), run, filters, output, overwrite, quiet, **how)


def roofline(
    context: typer.Context,
    device: options.DeviceOption = None,
    run: RunOption = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    title: TitleOption = "",
    output: RooflineOutputOption = DEFAULT_PICTURE,
    overwrite: options.PictureOverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
) -> None:
    """Draw the stored runs of a device under its ceilings; without any, run the ladder first.

    With a KERNEL, run it and store the run, then draw it with the others.
    """
    if context.invoked_subcommand is None:
        filters = {"kernel": kernel, "label": label, "since": since, "last": last}
        how = {"device": device, "title": title, "store": store}
        _draw_roofline((), run, filters, output, overwrite, quiet, **how)
        return
    options.inherit_options(context)


roofline_app = optional_kernel_app(roofline_with_kernel, roofline)


def _draw_roofline(
    kernel: tuple[Any, ...],
    names: "Sequence[str] | None",
    filters: "Mapping[str, Any]",
    output: Path,
    overwrite: bool,
    quiet: bool,
    **how: Any,
) -> None:
    if names and (given := conditions_text(**filters)):
        raise UsageError(f"--run and {given} were both given: name runs, or choose among all")
    check_picture(output, overwrite)

    from memlab.drawing import record_roofline
    from memlab.stored_runs import run_filter

    how |= {"names": names or (), "chosen": run_filter(**filters)}
    with progress_bar(quiet) as progress:
        gathered, code = partial_result(lambda: record_roofline(*kernel, progress=progress, **how))
    fresh = gathered.fresh
    if fresh is not None:
        note_time_limit(fresh.measurement.coverage, quiet)
    write_picture(output, gathered.figure(), gathered.csv(), overwrite=overwrite, quiet=quiet)
    if fresh is not None and fresh.measurement.verification.status == "failed":
        print_message("verification failed: the point is of a wrong program")
        code = code or EXIT_FINDING
    if code:
        raise typer.Exit(code)
