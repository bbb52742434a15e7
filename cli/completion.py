"""Completion of what files and the store hold: kernels in files, and stored runs.

Bash divides a word at its colons before it asks: `saxpy.cu:sa` comes as three words, of which the
last is completed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memlab.errors import UsageError
from memlab.text import printable

VARIABLE = "_MEMLAB_COMPLETE"
"""Set by the shell's function that asks for completions; Typer names it after the program."""

MAX_FILES = 50
"""The most files whose kernels are proposed, before one of them is named."""

_DIVIDERS = re.compile(r"[:=]+")


def join_words_of_bash() -> None:
    """Join the words that bash divided, in the variables in which it passes them."""
    if os.environ.get(VARIABLE) != "complete_bash":
        return
    text, current = os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", "")
    if not current.isdecimal():
        return
    between = "\n" if "\n" in text else " "  # the first of IFS, which Typer's function sets
    joined: list[str] = []
    place = 0
    after_divider = False
    for number, word in enumerate(text.split(between)):
        divider = _DIVIDERS.fullmatch(word) is not None
        if joined and (divider or after_divider) and (divider or word):
            joined[-1] += word
        elif not (after_divider and not word):
            joined.append(word)
        after_divider = divider
        if number <= int(current):
            place = len(joined) - 1
    os.environ["COMP_WORDS"] = between.join(joined)
    os.environ["COMP_CWORD"] = str(place)


def complete_file_kernel(incomplete: str) -> list[str]:
    """Complete `FILE.cu:ENTRY`: the kernels of the named file, or of all files that it may be."""
    file, colon, entry = incomplete.partition(":")
    if colon:
        return [f"{file}:{name}" for name in _kernels(Path(file)) if name.startswith(entry)]
    folder, _, start = file.rpartition("/")
    found = sorted(Path(folder or ("/" if file.startswith("/") else ".")).glob("*.cu"))
    prefix = f"{folder}/" if "/" in file else ""
    return [
        f"{prefix}{path.name}:{name}"
        for path in found[:MAX_FILES]
        if path.name.startswith(start)
        for name in _kernels(path)
    ]


def without_completed_part(name: str, incomplete: str) -> str:
    """Leave out what stands before the last colon of a word: bash completes only the rest."""
    if os.environ.get(VARIABLE) != "complete_bash":
        return name
    return name[len(incomplete) - len(incomplete.rpartition(":")[2]) :]


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """Complete a stored run: its number, newest first, with its kernel; or a label."""
    from memlab.roofline.store.store import Store

    found: list[tuple[str, str]] = []
    with suppress(UsageError):
        store = Store()
        found += [(str(number), printable(kernel)) for number, kernel in store.kernels()]
        found += [(label, "label") for label in sorted(store.labels())]
    return [(name, told) for name, told in found if name.startswith(incomplete)]


def complete_run_number(incomplete: str) -> list[tuple[str, str]]:
    """Complete the number of a stored run."""
    return [(name, told) for name, told in complete_run(incomplete) if name.isdecimal()]


def _kernels(path: Path) -> Iterator[str]:
    """The kernels that a source appears to declare; templates without `<`, which redirects."""
    from memlab.device.debug_info.kernel_lookup import declared_kernels
    from memlab.kernels.user.kernel import UserKernel, read_source

    with suppress(UsageError):
        yield from dict(declared_kernels(read_source(UserKernel(str(path)))))
