"""Counts of memory accesses as a table, and the flat names that its figures have in public."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, TypeAlias, overload

Space: TypeAlias = Literal["global", "shared", "local", "constant"]
Direction: TypeAlias = Literal["load", "store", "atomic", "reduction"]
"""A reduction is an atomic whose result no instruction reads: ptxas makes it another instruction
(RED), and Nsight Compute counts it apart."""

Figure: TypeAlias = Literal[
    "requests", "sectors", "wavefronts", "excessive_wavefronts", "requested_bytes", "used_bytes"
]


@dataclass(frozen=True)
class AccessCounts:
    """The counts of some accesses to one memory space.

    Attributes:
        requests: Warp-level instructions.
        sectors: 32-byte sectors that they touch, of global and local memory.
        wavefronts: Passes that serve them one after another: of the shared-memory pipe; for
            global and local memory one per 128-byte line; for constant memory one per address.
        excessive_wavefronts: Wavefronts of shared memory beyond the ideal for the access width.
        requested_bytes: Bytes that the threads ask for, summed over threads.
        used_bytes: Bytes of global memory that each warp asks for, summed over requests; a byte
            that several threads of a warp ask for counts once.
    """

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    excessive_wavefronts: int = 0
    requested_bytes: int = 0
    used_bytes: int = 0

    def __add__(self, other: AccessCounts) -> AccessCounts:
        return AccessCounts(*map(operator.add, vars(self).values(), vars(other).values()))


class NamedCount:
    """A flat name: an attribute of a record that reads one figure of its table of accesses."""

    def __init__(self, key: tuple[Space, Direction] | Space, figure: Figure) -> None:
        """Choose the figure.

        Args:
            key: The key in the table of accesses.
            figure: The field of `AccessCounts`.
        """
        self.key, self.figure = key, figure

    @overload
    def __get__(self, record: None, kind: type) -> NamedCount: ...
    @overload
    def __get__(self, record: NamedCounters, kind: type) -> int: ...
    def __get__(self, record: NamedCounters | None, kind: type) -> NamedCount | int:
        if record is None:
            return self
        value: int = getattr(record.accesses.get(self.key, AccessCounts()), self.figure)
        return value


@dataclass(frozen=True)
class NamedCounters:
    """A record of counts that documents, the glossary and Nsight Compute know by flat names.

    The flat names are those of its other fields and of its `NamedCount` attributes.

    Attributes:
        accesses: The table of accesses.
    """

    accesses: Mapping[Any, AccessCounts] = field(default_factory=dict, kw_only=True)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The flat names, in the order of documents and CSV columns."""
        plain = {field.name for field in fields(cls)}
        return tuple(
            name
            for name, value in vars(cls).items()
            if name in plain or isinstance(value, NamedCount)
        )

    @classmethod
    def from_names(cls, **values: Any) -> Self:
        """Make a record from its flat names; counts that are missing are 0.

        Raises:
            TypeError: A name is unknown.
        """
        table: dict[Any, dict[str, int]] = {}
        for name, named in vars(cls).items():
            if isinstance(named, NamedCount) and (count := values.pop(name, 0)):
                table.setdefault(named.key, {})[named.figure] = count
        accesses = {key: AccessCounts(**figures) for key, figures in table.items()}
        return cls(accesses=accesses, **values)

    def replace_named(self, **values: Any) -> Self:
        """Give a copy with other values under some flat names."""
        return self.from_names(**self.by_name() | values)

    @classmethod
    def from_table(cls, accesses: Mapping[Any, AccessCounts], **others: Any) -> Self:
        """Make a record from its fields; figures of accesses without a flat name are dropped.

        A record that was read from a document then equals the one that was written.
        """
        return cls(accesses=accesses, **others).replace_named()

    def by_name(self) -> dict[str, Any]:
        """Give all values by their flat names."""
        return {name: getattr(self, name) for name in self.names()}
