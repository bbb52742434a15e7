"""The report of a benchmark: figures, their limits, and whether they are met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: Its name.
        value: Its value, in `unit`.
        unit: Its unit.
        most: The largest allowed value; None for no limit.
        least: The smallest allowed value; None for no limit.
    """

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def missed(self) -> bool:
        """Whether the value violates a limit."""
        too_much = self.most is not None and not self.value <= self.most
        return too_much or (self.least is not None and not self.value >= self.least)

    @property
    def goal(self) -> str:
        """The limits, and whether they are met; empty without a limit."""
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in ((">=", self.least), ("<=", self.most))
            if limit is not None
        ]
        return f"{', '.join(limits):>8}  {'MISSED' if self.missed else 'ok'}" if limits else ""

    def line(self) -> str:
        """The figure, its limits, and whether they are met, as one line."""
        return f"{self.name:<52}{self.value:>9.3g} {self.unit:<6}{self.goal}".rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain text: the first column is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    )
