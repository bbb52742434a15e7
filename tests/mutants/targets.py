"""The modules in which faults are planted (`targets.toml`), and the known equivalent mutants."""

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
    """A module and the tests that must find its faults.

    Attributes:
        room: The module's room in `targets.toml`.
        path: The module's file, relative to the repository's root.
        tests: The test files, relative to the repository's root.
        default: Whether the module takes part without --module.
    """

    room: str
    path: str
    tests: tuple[str, ...]
    default: bool

    @property
    def source(self) -> str:
        """The module's source text."""
        return (ROOT / self.path).read_text("utf-8")

    def mutations(self) -> list[Mutation]:
        """All faults that can be planted in the module."""
        return mutations(self.source)


def targets() -> list[Target]:
    """Read `targets.toml`.

    Raises:
        FileNotFoundError: A pattern matches no file.
    """
    table = tomllib.loads((HERE / "targets.toml").read_text("utf-8"))
    return [
        Target(room, path, tuple(_files(entry["tests"])), entry.get("default", True))
        for room, entry in table.items()
        for path in _files(entry["modules"])
        if mutations((ROOT / path).read_text("utf-8"))
    ]


def _files(patterns: Sequence[str]) -> list[str]:
    files = []
    for pattern in patterns:
        matching = sorted(ROOT.glob(pattern))
        if not matching:
            raise FileNotFoundError(f"targets.toml: no file matches {pattern}")
        files += [file.relative_to(ROOT).as_posix() for file in matching]
    return files


def sample(faults: Sequence[Mutation], seed: int, most: int | None) -> list[Mutation]:
    """Draw at most `most` faults (None for all), one of each kind in turn.

    The draw depends only on the seed, the fault and the text of its line, so it stays the same when
    lines move or files are renamed.
    """

    def rank(fault: Mutation) -> str:
        texts = (str(seed), fault.source, fault.old, fault.new, str(fault.ordinal))
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    by_kind: dict[str, list[Mutation]] = defaultdict(list)
    for fault in sorted(faults, key=rank):
        by_kind[fault.kind].append(fault)
    drawn = [
        fault
        for _, _, fault in sorted(
            (turn, rank(fault), fault)
            for group in by_kind.values()
            for turn, fault in enumerate(group)
        )
    ]
    return sorted(drawn[:most], key=lambda fault: fault.line)


@dataclass(frozen=True)
class Equivalent:
    """A fault that does not change the program's behaviour.

    Attributes:
        path: The module's file, relative to the repository's root.
        line: The source line, without leading and trailing blanks.
        mutation: The fault as the report prints it.
        reason: Why the behaviour stays the same.
    """

    path: str
    line: str
    mutation: str
    reason: str

    def matches(self, path: str, mutation: Mutation) -> bool:
        """Whether this entry describes a fault."""
        return (self.path, self.line, self.mutation) == (path, mutation.source, mutation.text)


def equivalents() -> list[Equivalent]:
    """Read `equivalent.toml`."""
    table = tomllib.loads((HERE / "equivalent.toml").read_text("utf-8"))
    return [Equivalent(**entry) for entry in table.get("equivalent", [])]


def stale(known: Sequence[Equivalent]) -> list[Equivalent]:
    """The entries that match no fault of their module or give no reason."""
    found: dict[str, list[Mutation]] = {}
    for path in {entry.path for entry in known}:
        file = ROOT / path
        found[path] = mutations(file.read_text("utf-8")) if file.exists() else []
    return [
        entry
        for entry in known
        if not entry.reason
        or not any(entry.matches(entry.path, fault) for fault in found[entry.path])
    ]
