"""The flags of a project's own build, from the `compile_commands.json` that CMake writes.

The file is looked for in the folders above a source, and in the folder `build` of each (Clang's
"JSON Compilation Database"). It may come with a source that is not trusted. So only folders of
headers below the one where it was looked for are taken from it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATABASE = "compile_commands.json"
BUILD_FOLDERS = (".", "build")
"""Where the file lies below a folder: CMake's usual folder, and links to it."""

MAX_DATABASE_BYTES = 64 << 20
MAX_OPTION_FILE_BYTES = 1 << 20

_FOLDER_FLAGS = ("-I", "--include-path", "-isystem", "--system-include")
_DEFINE_FLAGS = ("-D", "--define-macro")
_STANDARD_FLAGS = ("-std", "--std")
_ARCHITECTURE_FLAGS = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")
_ARCHITECTURE = re.compile(r"\b(?:sm|compute)_(\d+[a-z]?)\b")
_FILE_FLAGS = ("--options-file", "-optf")


@dataclass(frozen=True)
class ProjectFlags:
    """The flags with which a project compiles a source.

    Attributes:
        include: Folders of headers inside the project, absolute.
        defines: Preprocessor definitions, `NAME` or `NAME=VALUE`.
        std: The C++ standard, such as `c++17`; empty if none is given.
        architectures: The architectures that it is compiled for, such as `sm_90a`.
    """

    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    std: str = ""
    architectures: tuple[str, ...] = ()


def project_flags(source: str) -> ProjectFlags:
    """The flags of the build for a source; none where no build compiles it, or cannot be read."""
    try:
        file = Path(source).resolve()
        for folder in file.parents:
            for database in (folder / build / DATABASE for build in BUILD_FOLDERS):
                if database.is_file():
                    state = database.stat()
                    return _flags_of(file, folder, database, (state.st_size, state.st_mtime_ns))
    except (OSError, ValueError, RuntimeError):  # a name with NUL, a loop of links
        pass
    return ProjectFlags()


@cache
def _flags_of(file: Path, root: Path, database: Path, _state: tuple[int, int]) -> ProjectFlags:
    if database.stat().st_size > MAX_DATABASE_BYTES:
        return ProjectFlags()
    try:
        entries = json.loads(database.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return ProjectFlags()
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) for key in ("directory", "file")
        ):
            continue
        directory = database.parent / entry["directory"]
        if (directory / entry["file"]).resolve() == file:
            words = _expanded(_words(entry), directory, root)
            return _read_flags(words, directory, root)
    return ProjectFlags()


def _words(entry: dict[str, Any]) -> list[str]:
    """The words of an entry's command."""
    arguments = entry.get("arguments")
    if isinstance(arguments, list) and all(isinstance(word, str) for word in arguments):
        return arguments
    try:
        return shlex.split(str(entry.get("command", "")))
    except ValueError:  # an open quotation mark
        return []


def _expanded(words: Sequence[str], directory: Path, root: Path) -> Iterator[str]:
    """The words, with those of the files that hold further options."""
    for flag, value in _flags_with_values(words, _FILE_FLAGS):
        if flag not in _FILE_FLAGS:
            yield flag
            continue
        path = (directory / value).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            continue
        if path.stat().st_size <= MAX_OPTION_FILE_BYTES:
            with suppress(ValueError):  # an open quotation mark
                yield from shlex.split(path.read_text(encoding="utf-8"))


def _read_flags(words: Iterator[str], directory: Path, root: Path) -> ProjectFlags:
    include: dict[str, None] = {}
    defines: dict[str, None] = {}
    std = ""
    architectures: dict[str, None] = {}
    known = (*_FOLDER_FLAGS, *_DEFINE_FLAGS, *_STANDARD_FLAGS, *_ARCHITECTURE_FLAGS)
    for flag, value in _flags_with_values(list(words), known):
        if flag in _FOLDER_FLAGS:
            folder = (directory / value).resolve()
            if folder.is_relative_to(root) and folder.is_dir():
                include[str(folder)] = None
        elif flag in _DEFINE_FLAGS:
            defines[value] = None
        elif flag in _STANDARD_FLAGS:
            std = value.replace("gnu++", "c++")
        elif flag in _ARCHITECTURE_FLAGS:
            architectures |= dict.fromkeys(f"sm_{each}" for each in _ARCHITECTURE.findall(value))
    return ProjectFlags(tuple(include), tuple(defines), std, tuple(architectures))


def _flags_with_values(words: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words, and the known flags among them with their values: `-I DIR`, `-IDIR`, `-I=DIR`."""
    rest = iter(words)
    for word in rest:
        if word in known:
            yield word, next(rest, "")
            continue
        flag = max((each for each in known if word.startswith(each)), key=len, default="")
        value = word[len(flag) :]
        if not flag or (flag not in ("-I", "-D") and not value.startswith("=")):
            yield word, ""
        else:
            yield flag, value.removeprefix("=")
