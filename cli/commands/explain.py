"""`memlab explain`: what a term, a counter or a kernel is."""

from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memlab.roofline.glossary import GlossaryEntry

SCHEMA_VERSION = 1
FIELD_LABEL_COLUMNS = 10


def _complete_name(incomplete: str) -> list[str]:
    """Complete a term or a kernel; a word that a shell would break in two gets dashes."""
    from memlab.roofline.glossary import explainable_names

    words = (name.replace(" ", "-") for name in explainable_names() if "'" not in name)
    return [word for word in words if word.lower().startswith(incomplete.lower())]


def explain(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TERM|KERNEL]",
            help="What to explain; several words are one term.",
            autocompletion=_complete_name,
            show_default=False,
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Explain a term, a counter or a kernel; alone, list them all."""
    from memlab.roofline import glossary

    entries = glossary.find_entries(" ".join(name)) if name else tuple(_all_entries())
    if as_json:
        import dataclasses
        import json

        document = {
            "schema_version": SCHEMA_VERSION,
            "entries": [dataclasses.asdict(entry) for entry in entries],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return

    from memlab.roofline.reports.parts import console, stack_sections

    console().print(stack_sections(map(_page, entries)) if name else _listing(entries))


def _all_entries() -> "Iterable[GlossaryEntry]":
    from memlab.kernels.catalog import CATALOG
    from memlab.roofline import glossary

    yield from glossary.terms().values()
    yield from (glossary.kernel_entry(kernel) for kernel in CATALOG.values())


def _listing(entries: "Iterable[GlossaryEntry]") -> "RenderableType":
    """Write all names, a paragraph a kind."""
    import textwrap
    from itertools import groupby

    from rich.console import Group
    from rich.text import Text

    from memlab.roofline.reports.parts import REPORT_COLUMNS, stack_sections

    kinds: list[RenderableType] = []
    for kind, group in groupby(entries, key=lambda entry: entry.kind):
        # A no-break space keeps a name of several words on one line.
        listed = ", ".join(entry.name.replace(" ", "\N{NO-BREAK SPACE}") for entry in group)
        lines = textwrap.wrap(listed, REPORT_COLUMNS - 2, break_on_hyphens=False)
        names = textwrap.indent("\n".join(lines), "  ").replace("\N{NO-BREAK SPACE}", " ")
        kinds.append(Group(Text(kind.capitalize(), style="bold"), Text(names)))
    return stack_sections((*kinds, Text("memlab explain NAME tells what one is.", style="dim")))


def _page(entry: "GlossaryEntry") -> "RenderableType":
    """Write one entry: its paragraphs, then unit, formula and where it comes from."""
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    from memlab.roofline.reports.parts import heading, indented, stack_sections

    facts = Table.grid(
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
            facts.add_row(Text(label, style="dim"), Text(text))
    parameters = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for option, meaning in entry.parameters:
        parameters.add_row(Text(option, style="cyan"), Text(meaning))
    tables = (each for each in (parameters, facts) if each.row_count)
    return Group(
        heading((Text(entry.name, style="bold cyan"), entry.kind)),
        indented(stack_sections((*map(Text, entry.paragraphs), *tables))),
    )
