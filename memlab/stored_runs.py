"""`memlab.runs` and `annotate`: the stored runs that a filter chooses, their labels and notes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.named_runs import find_run, is_file_name
from memlab.roofline.store.run_filter import RunFilter
from memlab.roofline.store.store import Store
from memlab.roofline.units import elide_middle
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memlab.roofline.run import Run

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
    return Store(store).runs(chosen)


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


def annotate(
    run: Run | int | str,
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
    if isinstance(run, str) and is_file_name(run):
        raise UsageError(f"{run} is a file, and only stored runs are changed: give a run's number")
    found = find_run(run, store)
    if found.id is None:
        raise UsageError("the run is not stored: make it with keep=True, or give it a label then")
    return Store(store).annotate(found.id, label=label, note=note)


def checked_label(text: str) -> str:
    """Return a label without blanks around it; empty for none.

    Raises:
        UsageError: It could be mistaken for a number or a file, is too long, or has control
            characters.
    """
    label = text.strip()
    if label.isdecimal() or is_file_name(label):
        raise UsageError(
            "a label is neither a whole number, nor has it a / or ends in .json, got "
            f"{elide_middle(label, MAX_LABEL_CHARACTERS)!r}: use one such as 'before'"
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


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _parse_since(since: str | date | timedelta | None) -> datetime | None:
    """Read a time, or a length of time before now.

    Raises:
        UsageError: It is neither.
    """
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
            from memlab.launching import current_time  # which takes a while

            return current_time() - since
        if not isinstance(since, datetime):
            since = datetime(since.year, since.month, since.day)
    except (ValueError, OverflowError, AttributeError):
        raise wrong from None
    return since if since.tzinfo else since.replace(tzinfo=UTC)
