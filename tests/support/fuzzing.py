"""The common part of the fuzz tests: numbers of cases, odd words, and a watch of file accesses.

The normal run draws the same 2,000 cases every time; the numbers stand at each test. `make fuzz`
draws `MEMLAB_FUZZ` times as many, from a seed that it prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("MEMLAB_FUZZ", "0"))

Test = TypeVar("Test", bound=Callable[..., Any])


def cases(number: int) -> Callable[[Test], Test]:
    """Draw a number of cases in the normal run, the same every time."""
    return settings(
        max_examples=number * (TIMES or 1),
        derandomize=not TIMES,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


_PLAIN_NUMBERS = "0 1 2 3 8 32 -1 +4 007 0x10 1_000 1e3 0.5 nan inf -inf 1e400 ٣ 2147483648"
_LONG_NUMBERS = ["9" * 19, "9" * 400, "9" * 5000, "0x" + "f" * 4000]
NUMBERS = st.sampled_from([*_PLAIN_NUMBERS.split(), *_LONG_NUMBERS])
"""Numbers, valid and mistyped; valid sizes are small or absurdly large."""

_SIGNS = (
    "- -- --- = , : @ ' \" \\ . .. / ~ * é 日本 🙂 %s {} $HOME `id` [bold] [/] <script> None -h"
)
_BLANKS = ["", " ", "\n", "a\nb", "\r", "\t", "\x1b[31m", "\0", "a\0b", "\udcff", "\u202e"]
ODD = st.sampled_from([*_SIGNS.split(), *_BLANKS, "; rm -rf x", "x" * 300, "y" * 5000])
"""Words that break code that does not expect them."""

WORDS = st.one_of(NUMBERS, ODD, st.text(max_size=12))


def seldom(draw: st.DrawFn, one_in: int) -> bool:
    """True once in so many draws; `one_of` merges equal strategies and has no weights."""
    return draw(st.integers(0, one_in - 1)) == one_in - 1


@dataclass
class Watch:
    """The events during a watch.

    Attributes:
        written: Files and folders made, changed or removed.
        read: Files opened for reading.
        started: Processes.
    """

    written: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)


_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink"}
_CHANGES |= {"os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.rmtree"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"}
_watching: list[Watch] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    watch = _watching[-1]
    if event == "open" and not isinstance(arguments[0], int):
        path, _, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        (watch.written if writes else watch.read).append(_absolute(path))
    elif event == "sqlite3.connect":
        watch.read.append(_absolute(arguments[0]))
    elif event in _CHANGES:
        watch.written += [
            _absolute(argument) for argument in arguments[:2] if isinstance(argument, (str, bytes))
        ]
    elif event in _STARTS:
        watch.started.append(f"{event} {arguments!r}")


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay as they are


_hooked: list[None] = []


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch this process through the interpreter's audit events (PEP 578)."""
    if not _hooked:
        sys.addaudithook(_note)  # for good: Python takes none away
        _hooked.append(None)
    _watching.append(Watch())
    try:
        yield _watching[-1]
    finally:
        _watching.pop()


def outside(paths: list[str], *folders: Path) -> list[str]:
    """The paths outside all of the folders."""
    return [
        path for path in paths if not any(Path(path).is_relative_to(folder) for folder in folders)
    ]


def children() -> set[str]:
    """The running child processes of this process."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
