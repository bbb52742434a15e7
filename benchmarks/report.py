"""Lines of a benchmark: a figure, its limit, and whether it was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: What was measured.
        value: What came out.
        unit: Its unit.
        most: The limit that it must not exceed; None where it is only stated.
    """

    name: str
    value: float
    unit: str
    most: float | None = None

    @property
    def missed(self) -> bool:
        """Whether it is above its limit."""
        return self.most is not None and not self.value <= self.most

    def line(self) -> str:
        """The figure, its limit beside it and how it stands to that."""
        text = f"{self.name:<52}{self.value:>9.3g} {self.unit:<6}"
        if self.most is None:
            return text.rstrip()
        return f"{text}{f'<= {self.most:g}':>8}  {'MISSED' if self.missed else 'ok'}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    )
