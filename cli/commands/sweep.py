"""`memlab sweep KERNEL`: run kernels at many points, and rank them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlab.cli import options
from memlab.cli.kernel_commands import EXIT_FINDING
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    partial_result,
    print_message,
    warnings_as_messages,
)
from memlab.cli.picture import check_picture, write_picture
from memlab.cli.sweep_kernels import sweep_kernels_app
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.roofline.sweep.records import Sweep

EXIT_INTERRUPTED = 130
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")

SWEEP_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}
"""Formats by a file's extension."""

SweepOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: HTML, JSON or CSV, by extension; or a picture, as "
        "--plot.",
    ),
]


def _parse_count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a whole number: write one, such as 4") from None


DevicesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAMES",
        help="GPUs and datasheets, as for run; several: h200,a100. "
        "[default: $MEMLAB_DEVICE, else the first GPU, else h200]",
        autocompletion=options.complete_device,
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        parser=options.named_text("--name", "tiles"),
        metavar="NAME",
        help="The sweep's name. [default: sweep-1 ...]",
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue a sweep that was interrupted.")
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Also draw a picture: .png, .svg or .pdf, with its .csv."
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        parser=_parse_count,
        metavar="N",
        help="Run in N processes of this machine: one a GPU, or shares of the cores.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Run on a Dask cluster, as tcp://host:8786."
    ),
]


def sweep_kernels(
    kernels: "Sequence[Any]",
    parameters: "Mapping[str, Any]",
    *,
    device: DevicesOption = None,
    restrict: Annotated[
        list[str] | None,
        typer.Option(
            "--restrict",
            metavar="CONDITION",
            help="Leave out points that do not meet it, as 'tile*tile <= width'.",
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="FIGURE",
            help="Rank by time, energy (of a GPU), flop_per_s, fraction_of_ceiling, occupancy or "
            "a counter.",
        ),
    ] = "time",
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="all, random, or tpe (an optimiser of Optuna); the latter two with --budget.",
        ),
    ] = "all",
    budget: Annotated[
        int | None,
        typer.Option("--budget", parser=_parse_count, metavar="N", help="Run at most N points."),
    ] = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: SweepOutputOption = None,
    plot: PlotOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Neither store runs nor use stored ones.")
    ] = False,
    name: NameOption = None,
    resume: ResumeOption = False,
    again: Annotated[
        bool, typer.Option("--again", help="Run points again that the store has.")
    ] = False,
    seed: options.SeedOption = 0,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", parser=_parse_count, metavar="N", help="Launches that a GPU times."
        ),
    ] = None,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Sweep kernels and print or write the ranking."""
    how = {
        "device": device or None,
        "restrict": restrict or (),
        "objective": objective,
        "strategy": strategy,
        "budget": budget,
        "keep": not no_store,
        "name": name or "",
        "resume": resume,
        "again": again,
        "store": store,
        "seed": seed,
        "samples": samples,
        "timeout_s": timeout,
        "memory_bytes": memory_limit,
        "workers": workers,
        "scheduler": scheduler,
    }
    _sweep(kernels, {**parameters, **how}, as_json, as_csv, output, plot, overwrite, quiet)


def sweep(
    context: typer.Context,
    resume: ResumeOption = False,
    name: NameOption = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: SweepOutputOption = None,
    plot: PlotOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Run kernels at all combinations of values, and rank them by time or another figure.

    Without a KERNEL, --resume continues the newest sweep, or the one that --name names.
    """
    if context.invoked_subcommand is not None:
        options.inherit_options(context)
        return
    if not resume:
        raise UsageError(
            "which kernel? for example 'memlab sweep tiled --tile 8,16,32 --width 512:2048:x2'; "
            f"see '{context.command_path} --help'"
        )
    how = {
        "keep": True,
        "resume": True,
        "name": name or "",
        "store": store,
        "workers": workers,
        "scheduler": scheduler,
    }
    _sweep((), how, as_json, as_csv, output, plot, overwrite, quiet)


sweep_app = sweep_kernels_app(sweep_kernels, sweep)


def _sweep(
    kernels: "Sequence[Any]",
    how: "Mapping[str, Any]",
    as_json: bool,
    as_csv: bool,
    output: Path | None,
    plot: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    option = "--plot"
    if output is not None and output.suffix.lower() in PICTURE_SUFFIXES:
        if plot is not None:
            raise UsageError(f"--plot {plot} and --output {output} both name a picture: choose one")
        plot, output, option = output, None, "--output"
    chosen = chosen_format(as_json, as_csv, output, SWEEP_FORMATS)
    if output is not None:
        check_output(output, overwrite)
    if plot is not None:
        check_picture(plot, overwrite, option)

    from memlab.cli.progress import progress_bar
    from memlab.sweeps.sweeping import SweepInterrupted
    from memlab.sweeps.sweeping import sweep as run_sweep

    try:
        with progress_bar(quiet) as progress, warnings_as_messages():
            result, code = partial_result(lambda: run_sweep(*kernels, progress=progress, **how))
    except SweepInterrupted as error:
        print_message(str(error))
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _deliver(result, chosen, output, overwrite, quiet)
    if plot is not None:
        if result.done:
            write_picture(
                plot, result.figure(), result.csv(), overwrite=overwrite, quiet=quiet, option=option
            )
        elif not quiet:
            print_message(f"no point is done: {plot} is not drawn")
    code = code or _exit_code(result)
    if code == UsageError.exit_code:
        reason = next((row.reason for row in result.rows), "there is none")
        given = "correct the values, for the reasons above" if chosen == "report" else reason
        raise UsageError(f"no point could run: {given}")
    if code:
        raise typer.Exit(code)


def _exit_code(result: "Sweep") -> int:
    """Return 1 for wrong outputs and faults, 2 where no point could be run, else 0."""
    statuses = {row.status for row in result.rows}
    if statuses & {"wrong", "fault"}:
        return EXIT_FINDING
    if "lost" in statuses:
        return 3
    return 0 if "done" in statuses else UsageError.exit_code


def _deliver(
    result: "Sweep", chosen: str, output: Path | None, overwrite: bool, quiet: bool
) -> None:
    if chosen == "report":
        from memlab.roofline.reports.parts import console
        from memlab.roofline.reports.sweep import sweep_report

        console().print(sweep_report(result))
        return

    if chosen == "html":
        if not result.done:
            print_message(f"no point is done: {output} is not written")
            return

        import memlab

        deliver(memlab.report_page(result).html, output, overwrite, quiet)
        return

    from memlab.roofline.documents.sweep import sweep_csv, sweep_document

    text = sweep_csv(result) if chosen == "csv" else json_text(sweep_document(result))
    deliver(text, output, overwrite, quiet)
