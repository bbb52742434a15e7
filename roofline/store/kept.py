"""What a command has stored and written so far, for the message after an interrupt."""

from __future__ import annotations

from pathlib import Path

_runs: list[int] = []
_files: list[Path] = []


def forget() -> None:
    """Begin a command, which has kept nothing yet."""
    _runs.clear()
    _files.clear()


def note_runs(ids: list[int]) -> None:
    """Note that runs are in a store, by their numbers in it."""
    _runs.extend(ids)


def note_file(path: Path) -> None:
    """Note that a file is written."""
    _files.append(path)


def kept_text() -> str:
    """Tell what is kept: `runs 3, 4 are stored, roofline.svg is written`."""
    parts = []
    if len(_runs) > 3:
        parts.append(f"{len(_runs)} runs are stored, {_runs[0]} to {_runs[-1]}")
    elif _runs:
        listed = ", ".join(map(str, _runs))
        parts.append(f"run {listed} is stored" if len(_runs) == 1 else f"runs {listed} are stored")
    if _files:
        listed = ", ".join(map(str, _files))
        parts.append(f"{listed} {'is' if len(_files) == 1 else 'are'} written")
    return " and ".join(parts) or "nothing was stored or written"
