"""`memlab runs`: list, show, export and delete the runs that were stored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

import memlab
from memlab.cli import options
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    partial_result,
    print_json,
    print_message,
)
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memlab.roofline.run import Run
    from memlab.roofline.store.store import Store

DeviceFilter = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME",
        help="Only runs on this device (h200, cuda:0).",
        autocompletion=options.complete_device,
    ),
]
KernelFilter = Annotated[
    str | None,
    typer.Option("--kernel", metavar="NAME", help="Only runs of this kernel."),
]


def _parse_run_id(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"a run's number is a whole number, got {text!r}: 'memlab runs' lists them"
        ) from None


runs_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@runs_app.callback()
def runs(
    context: typer.Context,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    as_json: options.JsonOption = False,
    store: options.StoreOption = None,
) -> None:
    """List the stored runs, newest last; or show, export or delete them."""
    if context.invoked_subcommand is None:
        list_runs(device, kernel, as_json, store)
        return
    options.inherit_options(context)


@runs_app.command("list")
def list_runs(
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    as_json: options.JsonOption = False,
    store: options.StoreOption = None,
) -> None:
    """List the stored runs, newest last, as 'memlab runs' alone does."""
    opened = _open_store(store)
    listed, code = partial_result(lambda: memlab.runs(device=device, kernel=kernel, store=store))
    if as_json:
        print_json(_documents(listed))
    elif listed:
        _print_table(listed)
    elif not code:
        print_message(_no_runs_message(opened, device, kernel))
    if code:
        raise typer.Exit(code)


def _print_table(runs: Sequence[Run]) -> None:
    from memlab.roofline.reports.parts import console
    from memlab.roofline.reports.runs import runs_table

    screen = console(most=sys.maxsize)
    screen.print(runs_table(runs, screen.width))
    if any(run.measurement.time.provenance != "measured" for run in runs):
        typer.echo("~ modelled, not measured", err=True)
    if any(run.placement.fraction_of_ceiling > 1 for run in runs):
        typer.echo("! invalid: above a physical limit", err=True)


@runs_app.command()
def show(
    run_id: Annotated[
        int, typer.Argument(parser=_parse_run_id, metavar="ID", help="Its number in the list.")
    ],
    as_json: options.JsonOption = False,
    store: options.StoreOption = None,
) -> None:
    """Show one run as 'memlab run' showed it."""
    run = _open_store(store).get(run_id)
    if as_json:
        from memlab.roofline.documents.runs import run_document

        print_json(run_document(run))
        return

    from memlab.roofline.reports.parts import console
    from memlab.roofline.reports.run import run_report

    console().print(run_report(run))


@runs_app.command()
def export(
    *,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: options.OutputOption = None,
    force: options.ForceOption = False,
    store: options.StoreOption = None,
) -> None:
    """Write runs as JSON or CSV, in base units.

    JSON, the default, has all data of a run; CSV has one row per run.
    """
    from memlab.roofline.documents.runs import runs_csv

    chosen = chosen_format(as_json, as_csv, output)
    if output is not None:
        check_output(output, force)
    opened = _open_store(store)
    listed, code = partial_result(lambda: memlab.runs(device=device, kernel=kernel, store=store))
    if not (listed or code):
        print_message(_no_runs_message(opened, device, kernel))
    text = runs_csv(listed) if chosen == "csv" else json_text(_documents(listed))
    deliver(text, output, force, quiet=True)
    if output is not None:
        print_message(f"wrote {_count(listed)} to {output}")
    if code:
        raise typer.Exit(code)


@runs_app.command()
def delete(
    run_ids: Annotated[
        list[int] | None,
        typer.Argument(parser=_parse_run_id, metavar="ID...", help="Their numbers in the list."),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Every run, or every run of --device and --kernel.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --all.")] = False,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    store: options.StoreOption = None,
) -> None:
    """Delete the runs with these numbers, or all. It cannot be undone."""
    if bool(run_ids) == every:
        raise UsageError("which runs? give their numbers, or --all; 'memlab runs' lists them")
    if run_ids and (device or kernel):
        raise UsageError("--device and --kernel choose among --all: give them, or numbers")
    opened = _open_store(store)
    if every:
        from memlab.stored_runs import run_filter

        run_ids = opened.ids(run_filter(device=device, kernel=kernel))
        if not run_ids:
            print_message(_no_runs_message(opened, device, kernel))
            return
        if not (yes or _is_confirmed(f"Delete {_count(run_ids)} from {opened.path}?")):
            print_message("nothing was deleted")
            return
    chosen = set(run_ids or ())
    opened.delete(chosen)
    print_message(f"deleted {_count(chosen)}")


def _open_store(path: options.StoreOption) -> Store:
    from memlab.roofline.store.store import Store

    return Store(path)


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on: add --yes")
    return typer.confirm(question, err=True)


def _count(runs: Sequence[Run] | Collection[int]) -> str:
    return f"{len(runs)} run" + ("" if len(runs) == 1 else "s")


def _no_runs_message(store: Store, device: str | None, kernel: str | None) -> str:
    of_kernel = f" of {kernel}" if kernel else ""
    on_device = f" on {device}" if device else ""
    return f"no runs{of_kernel}{on_device} in {store.path}; 'memlab run' makes them"


def _documents(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Make the documents that `memlab run --json` prints."""
    from memlab.roofline.documents.runs import run_document

    return [run_document(run) for run in runs]
