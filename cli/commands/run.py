"""`memlab run KERNEL`: launch a kernel once and report its use of memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import memlab
from memlab.cli import gate, options
from memlab.cli.kernel_commands import EXIT_FINDING, kernel_app
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    note_time_limit,
    partial_result,
    print_message,
    warnings_as_messages,
)
from memlab.cli.saved_outputs import SaveOption, parse_saves, save_outputs
from memlab.errors import MemlabError, UsageError

if TYPE_CHECKING:
    from memlab.device.machine_code.listing import MachineListing
    from memlab.kernels.user.kernel import UserKernel
    from memlab.roofline.comparison.conditions import Condition
    from memlab.roofline.run import Run

CounterSource = Literal["emulated", "ncu"]

RUN_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}
"""Formats by a file's extension."""

RunOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: HTML, JSON or CSV, by extension.",
    ),
]


def _parse_samples(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"samples must be a whole number, got {text!r}: use --samples 30"
        ) from None


def run_kernel(
    target: "str | UserKernel | Sequence[UserKernel]",
    parameters: Mapping[str, int | None],
    *,
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: RunOutputOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Do not store this run.")] = False,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            parser=options.named_text("--label", "before"),
            metavar="NAME",
            help="A name for this run, such as before.",
        ),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option(
            "--note",
            parser=options.named_text("--note", "'a remark'"),
            metavar="TEXT",
            help="A remark to keep with this run.",
        ),
    ] = None,
    seed: options.SeedOption = 0,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            parser=_parse_samples,
            metavar="N",
            help="Launches that a GPU times. "
            "[default: 30 or more, until the median is known to 0.5%]",
        ),
    ] = None,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    counters: Annotated[
        CounterSource,
        typer.Option("--counters", help="ncu: also count in hardware, with Nsight Compute."),
    ] = "emulated",
    cublas: Annotated[
        bool, typer.Option("--cublas", help="Also time cuBLAS on the same matrices, on a GPU.")
    ] = False,
    save: SaveOption = None,
    fail_if: gate.OwnFailIfOption = None,
    all_kernels: Annotated[
        bool, typer.Option("--all", help="Run every kernel that FILE.cu launches.")
    ] = False,
) -> None:
    """Run kernels, print or write the results, and exit with 1 if an output is wrong.

    With `all_kernels`, an error ends the run of that kernel alone; JSON is then a list.
    """
    chosen = chosen_format(as_json, as_csv, output, RUN_FORMATS)
    if all_kernels:
        _check_all_kernels(target, chosen, save)
    if output is not None:
        check_output(output, overwrite)
    targets = [target] if isinstance(target, str) or not isinstance(target, Sequence) else target
    files = parse_saves(save or [], overwrite, not isinstance(target, str))
    conditions = _conditions(fail_if)
    how = {"device": device, "seed": seed, "timeout_s": timeout, "memory_bytes": memory_limit}
    recorded = {
        "counters": counters,
        "cublas": cublas,
        "keep": not no_store,
        "label": label or "",
        "note": note or "",
        "store": store,
        "samples": samples,
    }
    runs: list[Run] = []
    first_code = 0
    for one in targets:
        try:
            result, code = _measure(one, quiet, **how, **recorded, **parameters)
        except MemlabError as error:
            if not all_kernels:
                raise
            name = one if isinstance(one, str) else one.target
            print_message(f"{name}: {error}")
            first_code = first_code or error.exit_code
            continue
        runs.append(result)
        if chosen == "html":
            listings = _machine_code(result, one, quiet, **how, **parameters)
            page = memlab.report_page(result, *listings, store=store)
            deliver(page.html, output, overwrite, quiet)
        elif chosen == "report":
            _print_report(result)
        elif not all_kernels:
            deliver(_document(result, chosen), output, overwrite, quiet)
        save_outputs(result.outputs, files, overwrite, quiet)
        judged = _judge(result, conditions)
        first_code = first_code or code or judged
    if all_kernels and chosen != "report":
        deliver(_document(runs, chosen), output, overwrite, quiet)
    if first_code:
        raise typer.Exit(first_code)


def _check_all_kernels(
    target: "str | UserKernel | Sequence[UserKernel]", chosen: str, save: list[str] | None
) -> None:
    """Refuse what `--all` does not do."""
    if isinstance(target, str):
        raise UsageError(f"--all runs the kernels that a file launches, got {target!r}: name one")
    if chosen == "html" or save:
        raise UsageError(
            "--all writes no page and saves no arrays: name one kernel for these, or make a page "
            "of the stored runs with 'memlab report'"
        )


def _conditions(texts: list[str] | None) -> "tuple[Condition, ...]":
    """Parse the conditions of `--fail-if`."""
    if not texts:
        return ()
    from memlab.roofline.comparison.conditions import parse_own_condition

    return tuple(map(parse_own_condition, texts))


def _measure(target: "str | UserKernel", quiet: bool, **how: Any) -> "tuple[Run, int]":
    """Run a kernel as `memlab.run` does, with its progress shown; the run and the exit code."""
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress, warnings_as_messages():
        result, code = partial_result(lambda: memlab.run(target, progress=progress, **how))
    note_time_limit(result.measurement.coverage, quiet)
    return result, code


def _judge(run: "Run", conditions: "Sequence[Condition]") -> int:
    """Print what is wrong with a run's output and which conditions it fails; the exit code."""
    code = 0
    verification = run.measurement.verification
    if verification.status == "failed":
        from memlab.roofline.units import compared_text

        details = f"{compared_text(verification)}; " if verification.wrong else ""
        details += f"{verification.worst}: " if verification.worst else ""
        print_message(
            f"verification failed: {details}"
            f"relative error {verification.relative_error:.3g}, "
            f"tolerance {verification.tolerance:.3g}"
        )
        code = EXIT_FINDING
    if conditions:
        from memlab.roofline.comparison.conditions import judge_run

        code = code or gate.print_failures(judge_run(run, conditions))
    return code


def _machine_code(
    run: "Run", target: "str | UserKernel", quiet: bool, **how: Any
) -> "list[MachineListing]":
    """The machine code of a run with its counts; nothing where it cannot be had.

    A run keeps the sums alone, so the launch is emulated once more.
    """
    from memlab.cli.progress import progress_bar

    coverage = run.measurement.coverage
    if coverage.not_counted or coverage.timed_out:
        return []
    try:
        with progress_bar(quiet) as progress:
            return [memlab.sass(target, progress=progress, **how)]
    except MemlabError as error:
        print_message(f"the page has no machine code: {error}")
        return []


def _print_report(run: "Run") -> None:
    from memlab.roofline.reports.parts import console
    from memlab.roofline.reports.run import run_report

    console().print(run_report(run))


def _document(runs: "Run | list[Run]", chosen: str) -> str:
    """A run, or the list of several, as JSON or CSV."""
    from memlab.roofline.documents.runs import run_document, runs_csv

    if chosen == "csv":
        return runs_csv(runs if isinstance(runs, list) else [runs])
    if isinstance(runs, list):
        return json_text([run_document(run) for run in runs])
    return json_text(run_document(runs))


run_app = kernel_app(run_kernel, "memlab run tiled", "Run a kernel and report its use of memory.")
