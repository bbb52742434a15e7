"""`memlab baseline save|check FILE`: what launches cost, guarded in a user's repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import memlab
from memlab.cli import gate, options
from memlab.cli.comparison_output import ComparisonOutput, comparison_form
from memlab.cli.completion import complete_run
from memlab.cli.output import check_output, deliver, print_message
from memlab.errors import UsageError
from memlab.text import plural

if TYPE_CHECKING:
    from memlab.results import BaselineCheck

baseline_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@baseline_app.callback()
def baseline(context: typer.Context) -> None:
    """Save what launches cost in a file, and check it after changes."""
    if context.invoked_subcommand is None:
        raise UsageError(
            "save or check? for example 'memlab baseline save baseline.json', then "
            "'memlab baseline check baseline.json'"
        )


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The baseline, such as baseline.json.")
]


@baseline_app.command()
def save(
    file: FileArgument,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...",
            help="Runs by number or label, or JSON files of runs.",
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    device: options.DeviceOption = None,
    overwrite: gate.OverwriteOption = False,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    quiet: options.QuietOption = False,
    store: options.StoreOption = None,
) -> None:
    """Save what launches cost: counters, resources and times, in a file for the repository.

    Without a RUN, the kernels of ./memlab.toml run or, where there is no such file, the newest
    stored run is saved. If FILE exists (--overwrite), its launches run again, with the kernels that
    are new in ./memlab.toml.
    """
    check_output(file, overwrite, "FILE")

    from memlab.cli.progress import progress_bar
    from memlab.comparisons.baselines import baseline_runs
    from memlab.roofline.documents.baseline import baseline_text

    with progress_bar(quiet) as progress:
        saved = baseline_runs(
            file,
            runs or (),
            device=device,
            store=store,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
        )
    deliver(baseline_text(saved), file, overwrite, True)
    if not quiet:
        names = ", ".join(dict.fromkeys(run.measurement.kernel for run in saved))
        count = len(saved)
        print_message(f"wrote {count} {plural(count, 'run')} to {file}: {names}")


@baseline_app.command()
def check(
    file: FileArgument,
    *,
    fail_if: gate.FailIfOption = None,
    threshold: gate.ThresholdOption = gate.DEFAULT_THRESHOLD_TEXT,
    force: Annotated[
        bool, typer.Option("--force", help="Compare times in spite of other GPUs or clocks.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every launch in full, and what did not change.")
    ] = False,
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    markdown: gate.MarkdownOption = False,
    output: gate.ComparisonOutputOption = None,
    junit: gate.JunitOption = None,
    sarif: gate.SarifOption = None,
    overwrite: gate.OverwriteOption = False,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    quiet: options.QuietOption = False,
) -> None:
    """Run the launches of a baseline again, and exit with 1 where one costs more.

    Without --fail-if, it fails where a counter that costs grew (requests, sectors, wavefronts,
    bytes, instructions, spills), or a time is slower by more than --threshold. Run it in the folder
    in which the baseline was saved: paths are relative to it.
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

    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        checked = memlab.check_baseline(
            file,
            fail_if=fail_if or (),
            threshold=share,
            force=force,
            device=device,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
        )
    code = result.deliver(checked.comparison)
    if not quiet:
        _print_notes(checked, file)
    if code:
        raise typer.Exit(code)


def _print_notes(checked: BaselineCheck, file: Path) -> None:
    for name in checked.new_kernels:
        print_message(f"{name} in memlab.toml is not in {file}: 'memlab baseline save' adds it")
    improved = [
        pair.b.measurement.kernel
        for pair in checked.comparison.pairs
        if any(change.judgement == "better" for change in pair.figures)
    ]
    if improved and not checked.failed:
        print_message(
            f"better than {file}: {', '.join(improved)}; keep it with "
            f"'memlab baseline save {file} --overwrite'"
        )
