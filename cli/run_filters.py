"""Options that choose among the stored runs, the same in all commands that read them."""

import shlex
from contextlib import suppress
from typing import Annotated, Any

import typer

from memlab.cli import options
from memlab.errors import UsageError


def complete_label(incomplete: str) -> list[str]:
    """Complete the label of a stored run."""
    from memlab.roofline.store.store import Store

    with suppress(UsageError):
        return sorted(name for name in Store().labels() if name.startswith(incomplete))
    return []


def _parse_since(text: str) -> str:
    from memlab.stored_runs import run_filter

    run_filter(since=text)
    return text


def _parse_last(text: str | int) -> int:  # a number where it stood before the sub-command
    number = int(text) if str(text).isdecimal() else 0
    if number < 1:
        raise UsageError(f"--last takes a number of runs, 1 or more, got {text!r}: use --last 5")
    return number


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
    list[str] | None,
    typer.Option(
        "--kernel", metavar="NAME", help="Only runs of this kernel, such as 'filter-*'; repeatable."
    ),
]
LabelFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME",
        help="Only runs with this label, or of this sweep; a pattern too; repeatable.",
        autocompletion=complete_label,
    ),
]
SinceFilter = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        parser=_parse_since,
        help="Only runs since then (UTC): 2h, 3d, 2026-11-01 or 2026-11-01T09:30.",
    ),
]
LastFilter = Annotated[
    int | None,
    typer.Option("--last", metavar="N", parser=_parse_last, help="Only the newest N of them."),
]


def conditions_text(**conditions: Any) -> str:
    """Write the conditions that were given as on the command line: `--kernel naive --last 3`."""
    words = []
    for name, value in conditions.items():
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            words += [f"--{name}", str(each)]
    return shlex.join(words)
