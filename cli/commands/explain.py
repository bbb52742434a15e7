"""`memlab explain`: what a term, a counter or a kernel is."""

from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memlab.roofline.glossary import Entry

SCHEMA_VERSION = 1
LABEL_COLUMNS = 10


def _complete(incomplete: str) -> list[str]:
    """Complete a term or a kernel; a word that a shell would break in two gets dashes."""
    from memlab.roofline.glossary import names

    words = (name.replace(" ", "-") for name in names() if "'" not in name)
    return [word for word in words if word.lower().startswith(incomplete.lower())]


def explain(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TERM|KERNEL]",
            help="What to explain; several words are one term.",
            autocompletion=_complete,
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Explain a term, a counter or a kernel; alone, list them all."""
    from memlab.roofline import glossary

    entries = glossary.find(" ".join(name)) if name else tuple(_everything())
    if as_json:
        import dataclasses
        import json

        document = {
            "schema_version": SCHEMA_VERSION,
            "entries": [dataclasses.asdict(entry) for entry in entries],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return

    from memlab.roofline.reports.parts import console, spaced

    console().print(spaced(map(_page, entries)) if name else _listing(entries))


def _everything() -> "Iterable[Entry]":
    from memlab.kernels.catalog import CATALOG
    from memlab.roofline import glossary

    yield from glossary.terms().values()
    yield from (glossary.kernel_entry(kernel) for kernel in CATALOG.values())


def _listing(entries: "Iterable[Entry]") -> "RenderableType":
    """Write all names, a paragraph a kind."""
    import textwrap
    from itertools import groupby

    from rich.console import Group
    from rich.text import Text

    from memlab.roofline.reports.parts import REPORT_COLUMNS, spaced

    kinds: list[RenderableType] = []
    for kind, group in groupby(entries, key=lambda entry: entry.kind):
        # A no-break space keeps a name of several words on one line.
        listed = ", ".join(entry.name.replace(" ", "\N{NO-BREAK SPACE}") for entry in group)
        lines = textwrap.wrap(listed, REPORT_COLUMNS - 2, break_on_hyphens=False)
        names = textwrap.indent("\n".join(lines), "  ").replace("\N{NO-BREAK SPACE}", " ")
        kinds.append(Group(Text(kind.capitalize(), style="bold"), Text(names)))
    return spaced((*kinds, Text("memlab explain NAME tells what one is.", style="dim")))


def _page(entry: "Entry") -> "RenderableType":
    """Write one entry: its paragraphs, then unit, formula and where it comes from."""
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    from memlab.roofline.reports.parts import heading, indented, spaced

    facts = Table.grid(Column(width=LABEL_COLUMNS), Column(overflow="fold"), padding=(0, 1, 0, 0))
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
        indented(spaced((*map(Text, entry.paragraphs), *tables))),
    )
