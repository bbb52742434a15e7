"""Runs as a table in a terminal, one row per run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.reports.run import time_label
from memlab.roofline.units import column_number, elide_middle, parameters_text, without_lists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.roofline.run import Run

RIGHT_COLUMNS = ("id", "time", "GFLOP/s", "roof")

FOLDED_COLUMNS = ("kernel", "bound", "label", "device")
"""Columns whose words continue on the next line where the terminal is too narrow."""

OPTIONAL_COLUMNS = ("GFLOP/s", "date", "bound", "device", "label")
"""Columns that a narrower terminal lacks, the first ones first; `memlab runs show` has them."""

WHOLE_WORD_COLUMNS = 32
"""Longer words may break where the terminal is too narrow: no kernel of the catalog's does."""

MAX_CELL_CHARACTERS = 300
"""Longest name in the table; `memlab runs show` has it whole."""

LABEL_COLUMNS = 16
"""Width that a longer label has before kernels get more than their longest word."""

KERNEL_COLUMNS = 24
"""Width of kernels and parameters for which optional columns are left out."""

MIN_KERNEL_COLUMNS = 9
"""Narrower, a kernel's name is not readable."""

VERDICTS = {"passed": "ok", "failed": "NO", "skipped": "-"}

Cell: TypeAlias = tuple[str, ...]
"""The words of a cell."""


def runs_table(runs: Sequence[Run], width: int) -> Table:
    """Make a table with one row per run.

    Args:
        runs: The runs, in the order of the rows.
        width: Columns of the terminal. Where the rows are longer, words go to the next line, then
            the columns of `OPTIONAL_COLUMNS` are left out.
    """
    rows = [_cells(run) for run in runs]
    columns = {name: [row[name] for row in rows] for name in _column_names(runs)}
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    widths = _widths(columns, width)
    for name in widths:
        justify: Literal["left", "right"] = "right" if name in RIGHT_COLUMNS else "left"
        table.add_column(name, justify=justify, overflow="fold", width=widths[name])
    for row in rows:
        table.add_row(*(_cell_text(name, row[name], widths[name]) for name in widths))
    return table


def _column_names(runs: Sequence[Run]) -> list[str]:
    labels = ["label"] if any(run.identity.name for run in runs) else []
    return ["id", *labels, "date", "kernel", "device", "time", "GFLOP/s", "bound", "roof", "ok"]


def _widths(columns: Mapping[str, Sequence[Cell]], available: int) -> dict[str, int]:
    """Choose the columns that fit, and their widths; words stay whole where that is possible."""
    whole = {name: _whole_width(name, cells) for name, cells in columns.items()}
    widths = {
        name: _word_width(name, cells) if name in FOLDED_COLUMNS else whole[name]
        for name, cells in columns.items()
    }
    wanted = max(0, min(whole["kernel"], KERNEL_COLUMNS) - widths["kernel"])
    for name in OPTIONAL_COLUMNS:
        if _spare(widths, available) < (0 if name == "label" else wanted):
            widths.pop(name, None)
    for name, most in (("label", LABEL_COLUMNS), *((name, available) for name in FOLDED_COLUMNS)):
        if name in widths:
            room = widths[name] + max(0, _spare(widths, available))
            widths[name] = max(widths[name], min(whole[name], room, most))
    widths["kernel"] = max(MIN_KERNEL_COLUMNS, widths["kernel"] + min(0, _spare(widths, available)))
    return widths


def _spare(widths: Mapping[str, int], available: int) -> int:
    return available - sum(widths.values()) - (len(widths) - 1)


def _whole_width(name: str, cells: Sequence[Cell]) -> int:
    return max(cell_len(text) for text in (name, *map(" ".join, cells)))


def _word_width(name: str, cells: Sequence[Cell]) -> int:
    words = (word for cell in cells for word in cell)
    return max(cell_len(name), *(min(cell_len(word), WHOLE_WORD_COLUMNS) for word in words), 0)


def _cell_text(name: str, words: Cell, width: int) -> Text:
    """Set a cell's words in lines of this width; longer words are left to break."""
    lines: list[str] = []
    for word in words:
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    text = Text("\n".join(lines))
    if name == "kernel":
        text.stylize("bold", 0, len(words[0]))
    elif words == (VERDICTS["failed"],):
        text.stylize("bold red")
    return text


def _cells(run: Run) -> dict[str, Cell]:
    """Give the cells of a row, each as the words between which it may be folded."""
    measurement, placement = run.measurement, run.placement
    fraction = placement.fraction_of_ceiling
    parameters = parameters_text(without_lists(measurement.parameters))
    return {
        "id": ("" if run.id is None else str(run.id),),
        "label": tuple(_shortened(run.identity.name).split()),
        "date": (run.created_at[:10],),
        # No line ends between a parameter and its value.
        "kernel": (_shortened(measurement.kernel), *_clauses(_shortened(parameters))),
        "device": (measurement.device.key,),
        "time": (time_label(measurement.time),),
        "GFLOP/s": (column_number(placement.flop_per_s / 1e9) if placement.flop_per_s else "-",),
        "bound": tuple(ceiling_label(placement.bound).removesuffix(" / shared").split()),
        "roof": (f"{fraction:.0%}{'!' if fraction > 1 else ''}",),
        "ok": (VERDICTS[measurement.verification.status],),
    }


def _clauses(text: str) -> list[str]:
    """Split parameters at their commas, which stay, and lists of words at their blanks."""
    clauses = text.replace(", ", ",\n").split("\n") if text else []
    return [
        part
        for clause in clauses
        for part in ([clause] if clause.count(" ") < 2 else clause.split(" "))
    ]


def _shortened(text: str) -> str:
    return elide_middle(text, MAX_CELL_CHARACTERS)
