"""`memlab.runs`, `find_runs` and `annotate`: stored runs, by filter, number, label or JSON file."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from memlab.errors import Incomplete, UsageError, suggest_nearest
from memlab.roofline.run import Run
from memlab.roofline.store.run_filter import RunFilter
from memlab.text import printable

if TYPE_CHECKING:
    from memlab.roofline.store.store import Store

RunName: TypeAlias = "Run | int | str"
"""A run itself, its number in the store, its label, or a JSON file that holds runs."""

MAX_LABEL_CHARACTERS = 100
"""The longest label; longer remarks are notes."""

_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|w)")
_SINCE_EXAMPLES = "use 2h, 3d, 2026-11-01 or 2026-11-01T09:30"


def runs(
    *,
    device: str | int | None = None,
    kernel: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    since: str | date | timedelta | None = None,
    last: int | None = None,
    store: Path | str | None = None,
) -> list[Run]:
    """Read the stored runs for which all that is given holds, oldest first.

    Examples:
        memlab.runs(kernel="tiled", since="2h")
        memlab.runs(label="tile-*", last=5)

    Args:
        device: Only the runs of this device: a GPU's index, such as 0, or its name, or a
            datasheet's name, such as `h200`. None takes all.
        kernel: Only the runs of this kernel, or of these; a name may be a pattern, `filter-*`.
        label: Only the runs with this label or of the sweep of this name, or with one of these; a
            name may be a pattern.
        since: Only the runs made since then: a date or a time (in UTC where it has no zone), as
            text in ISO 8601 too, or a length of time before now: `2h`, `3d` or a `timedelta`.
        last: The most runs; of more, the newest.
        store: The file of the stored runs; None takes `MEMLAB_STORE` from the environment, else a
            file in the user's data folder.

    Returns:
        The runs; `memlab.frame(runs)` makes a pandas frame of them, `memlab.roofline(runs)` a
        picture.

    Raises:
        UsageError: A time or a number that is none, or the store cannot be read.
        Incomplete: Some runs cannot be read; its `result` is the others.
    """
    chosen = run_filter(device=device, kernel=kernel, label=label, since=since, last=last)
    return _opened(store).runs(chosen)


def run_filter(
    *,
    device: str | int | None = None,
    kernel: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    since: str | date | timedelta | None = None,
    last: int | None = None,
) -> RunFilter:
    """Make the filter that the arguments of `runs` describe.

    Raises:
        UsageError: `since` is no time, or `last` no number from 1.
    """
    if last is not None and (not isinstance(last, int) or last < 1):
        raise UsageError(f"last takes a number of runs, 1 or more, got {last!r}: use --last 5")
    return RunFilter(device_key(device), _names(kernel), _names(label), _parse_since(since), last)


def find_runs(words: Sequence[RunName], store: Path | str | None = None) -> list[Run]:
    """Find runs by number, label or JSON file.

    A whole number is a run's number in the store. A name that ends in `.json` is a file which holds
    a run or a list of runs, as `memlab run --json` and `memlab runs export` write them. Other text
    is a label or the name of a sweep: all runs that carry it are meant, oldest first. Where one
    run is needed, `find_run` takes the newest of them.

    Args:
        words: Numbers, labels and files, as text too; a `Run` stands for itself.
        store: As for `runs`.

    Returns:
        The runs in the order of the words, each once.

    Raises:
        UsageError: There is no such run or file, or it cannot be read.
    """
    found: list[Run] = []
    for word in words:
        for run in _runs_named(word, _opened(store)):
            if not any(run.id == other.id and run == other for other in found):
                found.append(run)
    return found


def find_run(word: RunName, store: Path | str | None = None) -> Run:
    """Find one run as `find_runs` does; of several with the label, the newest.

    Raises:
        UsageError: As `find_runs`; also where a file holds several runs.
    """
    named = _runs_named(word, _opened(store), last=1)
    if len(named) > 1 and _is_file_name(word):
        raise UsageError(
            f"{word} holds {len(named)} runs, and one is needed: choose one in the store by its "
            "number or label"
        )
    return named[-1]


def annotate(
    run: RunName,
    *,
    label: str | None = None,
    note: str | None = None,
    store: Path | str | None = None,
) -> Run:
    """Give a stored run another label or note.

    Examples:
        memlab.annotate(3, label="before", note="before the loop was unrolled")

    Args:
        run: The run, its number, or its label; of several with that label, the newest.
        label: The new label; an empty one removes it, None leaves it as it is.
        note: The new note, likewise.
        store: As for `runs`.

    Returns:
        The run as it is stored now.

    Raises:
        UsageError: There is no such run in the store, or the text is no label.
    """
    label = None if label is None else checked_label(label)
    if _is_file_name(run):
        raise UsageError(f"{run} is a file, and only stored runs are changed: give a run's number")
    found = find_run(run, store)
    if found.id is None:
        raise UsageError("the run is not stored: make it with keep=True, or give it a label then")
    return _opened(store).annotate(found.id, label=label, note=note)


def checked_label(text: str) -> str:
    """Return a label without blanks around it; empty for none.

    Raises:
        UsageError: It could be mistaken for a number or a file, is too long, or has control
            characters.
    """
    label = text.strip()
    if label.isdecimal() or _is_file_name(label):
        raise UsageError(
            f"a label is neither a whole number nor a file's name, got {label!r}: "
            f"use one such as run-{Path(label).stem}"
        )
    if len(label) > MAX_LABEL_CHARACTERS or printable(label) != label:
        raise UsageError(
            f"a label has at most {MAX_LABEL_CHARACTERS} characters, none of them control "
            f"characters, got {len(label)}: shorten it, and say the rest in a note"
        )
    return label


def device_key(device: str | int | None) -> str | None:
    """Return the name under which runs of a device are stored: `cuda:0` for the GPU 0."""
    if device is None:
        return None
    text = str(device)
    return f"cuda:{text}" if text.isdecimal() else text


def _opened(store: Path | str | None) -> Store:
    from memlab.roofline.store.store import Store

    return Store(store)


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _is_file_name(word: RunName) -> bool:
    return isinstance(word, str) and word.lower().endswith(".json")


def _runs_named(word: RunName, store: Store, last: int | None = None) -> list[Run]:
    """Return the runs that one word means, at least one, oldest first.

    Args:
        word: The word.
        store: The store.
        last: The most runs of a label; of more, the newest.
    """
    if isinstance(word, Run):
        return [word]
    if isinstance(word, int) or word.isdecimal():
        return [store.get(int(word))]
    if _is_file_name(word):
        return _runs_in_file(Path(word))
    try:
        named = store.runs(RunFilter(labels=(glob.escape(word),), last=last))
    except Incomplete as error:  # what cannot be read has no label
        named = error.result
    if not named:
        raise _no_such_label_error(word, store)
    return named


def _no_such_label_error(word: str, store: Store) -> UsageError:
    known = store.labels()
    hint = (
        suggest_nearest(word, known, "'memlab runs' lists them")
        if known
        else "give a number that 'memlab runs' lists, or label a run with 'memlab runs label'"
    )
    return UsageError(f"no run in {store.path} has the label {word!r}: {hint}")


def _runs_in_file(path: Path) -> list[Run]:
    """Read the runs of a JSON document.

    Raises:
        UsageError: The file cannot be read, or holds no runs.
    """
    from memlab.roofline.documents.runs import run_from_document

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}): check its name") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not JSON ({error}): write it with 'memlab run --json -o {path}'"
        ) from None
    documents = document if isinstance(document, list) else [document]
    if not documents:
        raise UsageError(f"{path} holds no run: write some with 'memlab runs export -o {path}'")
    try:
        return [run_from_document(each) for each in documents]
    except UsageError as error:
        raise UsageError(
            f"{path} holds no run that this memlab reads ({error}): write it again with "
            "'memlab run --json -o FILE'"
        ) from None


def _parse_since(since: str | date | timedelta | None) -> datetime | None:
    """Read a time, or a length of time before now.

    Raises:
        UsageError: It is neither.
    """
    from memlab.launching import current_time

    if since is None:
        return None
    wrong = UsageError(
        f"since takes a time, or a length of time before now, got {since!r}: {_SINCE_EXAMPLES}"
    )
    try:
        if isinstance(since, str):
            if match := _DURATION.fullmatch(since.strip().lower()):
                since = timedelta(seconds=int(match[1]) * _UNITS_S[match[2]])
            else:
                since = datetime.fromisoformat(since.strip())
        if isinstance(since, timedelta):
            return current_time() - since
        if not isinstance(since, datetime):
            since = datetime(since.year, since.month, since.day)
    except (ValueError, OverflowError, AttributeError):
        raise wrong from None
    return since if since.tzinfo else since.replace(tzinfo=UTC)
