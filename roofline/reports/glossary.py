"""Entries of the glossary in a terminal, and the list of their names."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from memlab.roofline.reports.parts import REPORT_COLUMNS, heading, indented, stack_sections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memlab.roofline.glossary import GlossaryEntry

FIELD_LABEL_COLUMNS = 10


def glossary_list(entries: Iterable[GlossaryEntry]) -> RenderableType:
    """List the names of entries, one paragraph per kind."""
    kinds: list[RenderableType] = []
    for kind, group in groupby(entries, key=lambda entry: entry.kind):
        # A no-break space keeps a name of several words on one line.
        listed = ", ".join(entry.name.replace(" ", "\N{NO-BREAK SPACE}") for entry in group)
        lines = textwrap.wrap(listed, REPORT_COLUMNS - 2, break_on_hyphens=False)
        names = textwrap.indent("\n".join(lines), "  ").replace("\N{NO-BREAK SPACE}", " ")
        kinds.append(Group(Text(kind.capitalize(), style="bold"), Text(names)))
    return stack_sections((*kinds, Text("memlab explain NAME tells what one is.", style="dim")))


def glossary_pages(entries: Iterable[GlossaryEntry]) -> RenderableType:
    """Write whole entries, one after another."""
    return stack_sections(map(_page, entries))


def _page(entry: GlossaryEntry) -> RenderableType:
    """Write one entry: its paragraphs, then unit, formula and source."""
    fields = Table.grid(
        Column(width=FIELD_LABEL_COLUMNS), Column(overflow="fold"), padding=(0, 1, 0, 0)
    )
    for label, lines in (
        ("unit", (entry.unit,)),
        ("formula", (entry.formula,)),
        ("ncu", entry.ncu),
        ("chapter", entry.chapters),
        ("source", (entry.source,)),
        ("also", (", ".join(entry.aliases),)),
        ("see", (", ".join(entry.see),)),
    ):
        text = "\n".join(line for line in lines if line)
        if text:
            fields.add_row(Text(label, style="dim"), Text(text))
    parameters = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for option, meaning in entry.parameters:
        parameters.add_row(Text(option, style="cyan"), Text(meaning))
    tables = (table for table in (parameters, fields) if table.row_count)
    return Group(
        heading((Text(entry.name, style="bold cyan"), entry.kind)),
        indented(stack_sections((*map(_paragraph, entry.paragraphs), *tables))),
    )


def _paragraph(text: str) -> RenderableType:
    """Write a paragraph, and the items of a list in it beside their marks."""
    lines: list[RenderableType] = []
    for line in text.split("\n"):
        item = Table.grid(Column(), Column(), padding=(0, 1, 0, 0))
        item.add_row(Text("-"), Text(line.removeprefix("- ")))
        lines.append(item if line.startswith("- ") else Text(line))
    return Group(*lines)
