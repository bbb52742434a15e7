"""Where faults are planted, as `targets.toml` says, and those known to change nothing."""

from __future__ import annotations

import hashlib
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .operators import Mutation, mutations

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Target:
    """A module, and who tests it.

    Attributes:
        room: Its room.
        path: Its file, from the repository's root.
        tests: The files of tests that must find what is wrong with it, likewise.
    """

    room: str
    path: str
    tests: tuple[str, ...]

    @property
    def source(self) -> str:
        """Its text."""
        return (ROOT / self.path).read_text("utf-8")

    def mutations(self) -> list[Mutation]:
        """All faults that can be planted in it."""
        return mutations(self.source)


def targets() -> list[Target]:
    """Read the table.

    Raises:
        FileNotFoundError: A pattern fits no file.
    """
    table = tomllib.loads((HERE / "targets.toml").read_text("utf-8"))
    return [
        Target(room, path, tuple(_files(entry["tests"])))
        for room, entry in table.items()
        for path in _files(entry["modules"])
        if mutations((ROOT / path).read_text("utf-8"))
    ]


def _files(patterns: Sequence[str]) -> list[str]:
    files = []
    for pattern in patterns:
        found = sorted(ROOT.glob(pattern))
        if not found:
            raise FileNotFoundError(f"targets.toml: no file is called {pattern}")
        files += [each.relative_to(ROOT).as_posix() for each in found]
    return files


def sample(all_of_them: Sequence[Mutation], seed: int, most: int | None) -> list[Mutation]:
    """Draw some faults, of each kind in turn, so that rare kinds are among them.

    The draw looks at a fault and its line alone: it stays when lines move or files get other names.
    """

    def rank(each: Mutation) -> str:
        texts = (str(seed), each.source, each.old, each.new, str(each.ordinal))
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    by_kind: dict[str, list[Mutation]] = defaultdict(list)
    for each in sorted(all_of_them, key=rank):
        by_kind[each.kind].append(each)
    drawn = [
        each
        for _, _, each in sorted(
            (place, rank(each), each)
            for group in by_kind.values()
            for place, each in enumerate(group)
        )
    ]
    return sorted(drawn[:most], key=lambda each: each.line)


@dataclass(frozen=True)
class Equivalent:
    """A fault with which the program does the same.

    Attributes:
        path: The module's file, from the repository's root.
        line: The line of source, without the blanks around it.
        mutation: The fault, as it is printed.
        reason: Why nothing changes.
    """

    path: str
    line: str
    mutation: str
    reason: str

    def is_(self, path: str, mutation: Mutation) -> bool:
        """Whether this is that fault."""
        return (self.path, self.line, self.mutation) == (path, mutation.source, mutation.text)


def equivalents() -> list[Equivalent]:
    """Read what was judged equivalent."""
    table = tomllib.loads((HERE / "equivalent.toml").read_text("utf-8"))
    return [Equivalent(**entry) for entry in table.get("equivalent", [])]


def stale(known: Sequence[Equivalent]) -> list[Equivalent]:
    """Those that fit no fault of their module, or say no reason."""
    found: dict[str, list[Mutation]] = {}
    for path in {each.path for each in known}:
        file = ROOT / path
        found[path] = mutations(file.read_text("utf-8")) if file.exists() else []
    return [
        each
        for each in known
        if not each.reason or not any(each.is_(each.path, other) for other in found[each.path])
    ]
