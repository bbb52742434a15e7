"""The diagnosis of a machine in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

STATUS_MARKS = {"works": ("✓", "green"), "note": ("!", "yellow"), "fails": ("✗", "red")}
"""Mark and style for each state of an item."""


class Item(Protocol):
    """One line of the diagnosis, as `memlab.device.doctor` gives it."""

    @property
    def subject(self) -> str:
        """The part that was examined."""
        ...

    @property
    def state(self) -> str:
        """`works`, `note` or `fails`."""
        ...

    @property
    def found(self) -> str:
        """The result."""
        ...

    @property
    def advice(self) -> str:
        """The remedy; empty where none is needed."""
        ...


def doctor_report(
    items: Iterable[Item], *, gpu_works: bool, emulator_works: bool
) -> RenderableType:
    """Lay out a diagnosis: one row per item, then the conclusion.

    Args:
        items: The items.
        gpu_works: Whether kernels can run on a GPU.
        emulator_works: Whether kernels can run on emulated devices.
    """
    table = Table.grid(Column(), Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for item in items:
        mark, style = STATUS_MARKS[item.state]
        text = Text(item.found)
        if item.advice:
            text.append(f"\n→ {item.advice}", style="dim")
        table.add_row(Text(mark, style=style), Text(item.subject, style="bold"), text)
    conclusion = _conclusion(gpu_works, emulator_works)
    return Group(table, Text(), Text(conclusion, style="bold"))


def _conclusion(gpu_works: bool, emulator_works: bool) -> str:
    if gpu_works:
        emulated = "" if emulator_works else "; emulated devices do not"
        return f"GPU runs work here{emulated}: memlab run tiled"
    if emulator_works:
        return "No GPU to run on, but emulated devices work: memlab run tiled --device h200"
    return "Nothing can run here yet: fix the items marked ✗, from the bottom up"
