"""`memlab runs`: list, show, label, export and delete the runs that were stored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

import memlab
from memlab.cli import options
from memlab.cli.completion import complete_run, complete_run_number
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    partial_result,
    print_json,
    print_message,
)
from memlab.cli.run_filters import (
    DeviceFilter,
    KernelFilter,
    LabelFilter,
    LastFilter,
    SinceFilter,
    conditions_text,
)
from memlab.cli.terminal_text import echo
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from memlab.roofline.run import Run


def _parse_run_id(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"a run's number is a whole number, got {text!r}: 'memlab runs' lists them"
        ) from None


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its number in the list, its label, or a JSON file.",
        autocompletion=complete_run,
    ),
]
StoredRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Its number in the list, or its label.", autocompletion=complete_run
    ),
]

runs_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@runs_app.callback()
def runs(
    context: typer.Context,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    as_json: options.JsonOption = False,
    store: options.StoreOption = None,
) -> None:
    """List the stored runs, newest last; or show, label, export or delete them."""
    if context.invoked_subcommand is None:
        list_runs(device, kernel, label, since, last, as_json, store)
        return
    options.inherit_options(context)


@runs_app.command("list")
def list_runs(
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    as_json: options.JsonOption = False,
    store: options.StoreOption = None,
) -> None:
    """List the stored runs, newest last, as 'memlab runs' alone does."""
    chosen = _Chosen(store, device=device, kernel=kernel, label=label, since=since, last=last)
    listed, code = partial_result(chosen.runs)
    if as_json:
        print_json(_documents(listed))
    elif listed:
        _print_table(listed)
    elif not code:
        print_message(chosen.none_message)
    if code:
        raise typer.Exit(code)


def _print_table(runs: Sequence[Run]) -> None:
    from memlab.roofline.reports.parts import table_console
    from memlab.roofline.reports.runs import runs_table

    screen = table_console()
    screen.print(runs_table(runs, screen.width))
    if any(run.measurement.time.provenance != "measured" for run in runs):
        echo("~ modelled, not measured", err=True)
    if any(run.placement.fraction_of_ceiling > 1 for run in runs):
        echo("! invalid: above a physical limit", err=True)


@runs_app.command()
def show(
    run: RunArgument, as_json: options.JsonOption = False, store: options.StoreOption = None
) -> None:
    """Show one run as 'memlab run' showed it.

    Of several with the label, the newest is shown.
    """
    from memlab.named_runs import find_run

    found = find_run(run, store)
    if as_json:
        from memlab.roofline.documents.runs import run_document

        print_json(run_document(found))
        return

    from memlab.roofline.reports.parts import console
    from memlab.roofline.reports.run import run_report

    console().print(run_report(found))


@runs_app.command()
def label(
    run: StoredRunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its label; '' removes it.")],
    store: options.StoreOption = None,
) -> None:
    """Give a stored run a label, by which commands find it."""
    changed = memlab.annotate(run, label=name, store=store)
    name = changed.identity.label
    print_message(f"run {changed.id} {f'has the label {name}' if name else 'has no label'}")


@runs_app.command()
def note(
    run: StoredRunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its note; '' removes it.")],
    store: options.StoreOption = None,
) -> None:
    """Keep a remark with a stored run; 'memlab runs show' shows it."""
    changed = memlab.annotate(run, note=text, store=store)
    print_message(f"run {changed.id} has {'a' if changed.identity.note else 'no'} note")


@runs_app.command()
def export(
    *,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    as_json: options.JsonOption = False,
    as_csv: options.CsvOption = False,
    output: options.OutputOption = None,
    overwrite: options.OverwriteOption = False,
    store: options.StoreOption = None,
) -> None:
    """Write runs as JSON or CSV, in base units.

    JSON, the default, has all data of a run; CSV has one row per run.
    """
    from memlab.roofline.documents.runs import runs_csv

    form = chosen_format(as_json, as_csv, output)
    if output is not None:
        check_output(output, overwrite)
    chosen = _Chosen(store, device=device, kernel=kernel, label=label, since=since, last=last)
    listed, code = partial_result(chosen.runs)
    if not (listed or code):
        print_message(chosen.none_message)
    text = runs_csv(listed) if form == "csv" else json_text(_documents(listed))
    deliver(text, output, overwrite, quiet=True)
    if output is not None:
        print_message(f"wrote {_count(listed)} to {output}")
    if code:
        raise typer.Exit(code)


@runs_app.command()
def delete(
    run_ids: Annotated[
        list[int] | None,
        typer.Argument(
            parser=_parse_run_id,
            metavar="ID...",
            help="Their numbers in the list.",
            autocompletion=complete_run_number,
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Every run, or all that the other options choose.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --all.")] = False,
    device: DeviceFilter = None,
    kernel: KernelFilter = None,
    label: LabelFilter = None,
    since: SinceFilter = None,
    last: LastFilter = None,
    store: options.StoreOption = None,
) -> None:
    """Delete the runs with these numbers, or all. It cannot be undone."""
    chosen = _Chosen(store, device=device, kernel=kernel, label=label, since=since, last=last)
    if bool(run_ids) == every:
        raise UsageError("which runs? give their numbers, or --all; 'memlab runs' lists them")
    if run_ids and chosen.conditions:
        raise UsageError(
            f"{chosen.conditions} and numbers were both given: add --all to the former, or leave "
            "one of them out"
        )
    if every:
        run_ids = chosen.ids()
        if not run_ids:
            print_message(chosen.none_message)
            return
        if not (yes or _is_confirmed(f"Delete {_count(run_ids)} from {chosen.store.path}?")):
            print_message("nothing was deleted")
            return
    ids = set(run_ids or ())
    chosen.store.delete(ids)
    print_message(f"deleted {_count(ids)}")


class _Chosen:
    """The runs that a command's options choose."""

    def __init__(self, store: Path | None, **conditions: Any) -> None:
        """Take the store and the values of the filters, by the names of `memlab.runs`."""
        from memlab.roofline.store.store import Store
        from memlab.stored_runs import run_filter

        self.store = Store(store)
        self.conditions = conditions_text(**conditions)
        self._filter = run_filter(**conditions)

    def runs(self) -> list[Run]:
        """Read the runs; errors as for `memlab.runs`."""
        return self.store.runs(self._filter)

    def ids(self) -> list[int]:
        """Read their numbers."""
        return self.store.ids(self._filter)

    @property
    def none_message(self) -> str:
        """The message where there are none."""
        if self.conditions and self.store.ids():
            return f"no run in {self.store.path} fits {self.conditions}; 'memlab runs' lists all"
        return f"no runs in {self.store.path}; 'memlab run' makes them"


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on: add --yes")
    return typer.confirm(question, err=True)


def _count(runs: Sequence[Run] | Collection[int]) -> str:
    return f"{len(runs)} run" + ("" if len(runs) == 1 else "s")


def _documents(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Make the documents that `memlab run --json` prints."""
    from memlab.roofline.documents.runs import run_document

    return [run_document(run) for run in runs]
