"""Commands of a lesson that cannot run here: they need a package that is not installed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from memlab.lessons.lesson import Command

_EXTRAS = ("numba", "triton")
"""The packages that an extra of memlab's brings."""


def reason_to_leave_out(command: Command, folder: Path, left_out: Iterable[Command]) -> str:
    """Why a command cannot run, and what brings the package that it needs; empty if it can.

    Args:
        command: The command.
        folder: The folder in which it would run, with the files that it names.
        left_out: The commands before it that were left out; one that names the label of such a
            run has no run to show.
    """
    for word in command.words:
        file = folder / word.partition(":")[0]
        if file.suffix != ".py" or not file.is_file():
            continue
        for package in _imported_packages(file):
            if find_spec(package) is None and not (folder / f"{package}.py").exists():
                extra = f"memlab[{package}]" if package in _EXTRAS else package
                return f"{file.name} needs {package}: pip install '{extra}'"
    for missed in left_out:
        label = _label(missed)
        if label in command.words:
            return f"the run {label!r} was left out"
    return ""


def _label(command: Command) -> str:
    """The label that a command gives its run; empty for none."""
    following = dict(zip(command.words, command.words[1:], strict=False))
    return following.get("--label", "")


def _imported_packages(file: Path) -> Iterator[str]:
    """The packages that a file imports by their full names."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
