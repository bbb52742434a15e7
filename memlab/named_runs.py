"""Runs by name: a number in the store, a label, a sweep, or a JSON file."""

from __future__ import annotations

import glob
import json
from os import PathLike, fsdecode
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from memlab.errors import Incomplete, UsageError, suggest_nearest
from memlab.roofline.documents.runs import run_from_document
from memlab.roofline.run import Run
from memlab.roofline.store.run_filter import RunFilter
from memlab.roofline.store.store import Store
from memlab.roofline.store.sweeps import SweepStore
from memlab.roofline.units import elide_middle

if TYPE_CHECKING:
    from collections.abc import Iterable

RunName: TypeAlias = "Run | int | str | PathLike[str] | Iterable[Run]"
"""A run or several: themselves, a number, a label, the name of a sweep, or a JSON file."""

MAX_FILE_BYTES = 256 << 20
"""The longest file of runs that is read: some ten thousand runs."""

_MAX_SHOWN_CHARACTERS = 80


def find_runs(
    name: RunName, store: Path | str | None = None, *, last: int | None = None
) -> list[Run]:
    """Find the runs that a name stands for.

    Args:
        name: A run's number in the store (12 or `"12"`); a label or a sweep's name, for all runs
            that have it; a file (any name that ends with `.json` or has a `/`) with the JSON of
            `memlab run --json`, `runs show --json` or `runs export`; or runs, which are returned.
        store: The file of the stored runs; None takes `MEMLAB_STORE` from the environment, else a
            file in the user's data folder.
        last: The most runs of a label or a sweep; of more, the newest.

    Returns:
        The runs, at least one; of the store oldest first, of a file in its order.

    Raises:
        UsageError: No run has this name, or the store or the file cannot be read.
    """
    if isinstance(name, Run):
        return [name]
    if isinstance(name, bool) or not isinstance(name, int | str | PathLike):
        return _given_runs(name)
    text = fsdecode(name) if isinstance(name, PathLike) else str(name)
    if isinstance(name, PathLike) or is_file_name(text):
        return read_runs(Path(text))
    kept = Store(store)
    if text.isdecimal():
        return [kept.get(int(text))]
    try:
        found = kept.runs(RunFilter(labels=(glob.escape(text),), last=last))
    except Incomplete as error:  # another run that cannot be read is no obstacle
        found = error.result
    found = _with_reused_runs(found, text, kept, last)
    if not text or not found:
        raise _unknown_name_error(text, kept)
    return found


def _with_reused_runs(found: list[Run], name: str, store: Store, last: int | None) -> list[Run]:
    """Add the runs of earlier sweeps that the sweep of this name did not run again."""
    known = {run.id for run in found}
    reused = [number for number in SweepStore(store).run_ids(name) if number not in known]
    if not reused:
        return found
    stored = set(store.ids())
    added = [store.get(number) for number in reused if number in stored]
    merged = sorted((*found, *added), key=lambda run: run.id or 0)
    return merged if last is None else merged[-last:]


def find_run(name: RunName, store: Path | str | None = None) -> Run:
    """Find the run that a name stands for, as `find_runs`; the newest of several in the store.

    Raises:
        UsageError: As `find_runs`; also for several runs that are not in the store.
    """
    found = find_runs(name, store, last=1)
    if len(found) > 1:
        what = name if isinstance(name, str | PathLike) else "the list"
        raise UsageError(
            f"{what} holds {len(found)} runs, and one is needed: give its number or its label"
        )
    return found[0]


def is_file_name(name: str) -> bool:
    """Whether the name of runs is a file's."""
    return "/" in name or name.lower().endswith(".json")


def read_runs(path: Path) -> list[Run]:
    """Read the runs of a JSON file: one run, or a list of them.

    Raises:
        UsageError: The file cannot be read, or holds no runs.
    """
    shown = elide_middle(str(path), _MAX_SHOWN_CHARACTERS)
    try:
        if path.is_dir():
            raise UsageError(f"{shown} is a folder: name a file with runs as JSON")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {shown} ({reason}): check its name") from None
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{shown} has more than {MAX_FILE_BYTES >> 20} MiB: export fewer runs")
    try:
        document = json.loads(content)
        runs = [
            run_from_document(item)
            for item in (document if isinstance(document, list) else [document])
        ]
    except (UsageError, ValueError, RecursionError) as error:
        reason = elide_middle(str(error), 2 * _MAX_SHOWN_CHARACTERS)
        raise UsageError(
            f"{shown} holds no runs ({reason}): "
            f"write such a file with 'memlab run KERNEL -o FILE.json' or 'memlab runs export'"
        ) from None
    if not runs:
        raise UsageError(f"{shown} holds no runs: it is an empty list")
    return runs


def _given_runs(runs: object) -> list[Run]:
    members = list(runs) if isinstance(runs, list | tuple) else []
    if not members or not all(isinstance(run, Run) for run in members):
        raise UsageError(
            f"runs are given as a number, a label, a file or runs, got an object of type "
            f"{type(runs).__name__}: use memlab.run(...), 12, 'before' or 'before.json'"
        )
    return members


def _unknown_name_error(name: str, store: Store) -> UsageError:
    shown = elide_middle(name, _MAX_SHOWN_CHARACTERS)
    known = store.labels()
    problem = f"no run in {store.path} has the number, label or sweep {shown!r}"
    if Path(f"{name}.json").is_file():
        return UsageError(f"{problem}: did you mean the file '{shown}.json'?")
    listing = "'memlab runs' lists them; a file's name ends with .json"
    return UsageError(f"{problem}: {suggest_nearest(name, known, listing) if known else listing}")
