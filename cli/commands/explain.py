"""`memlab explain`: the meaning of a term, a counter or a kernel."""

from typing import Annotated

import typer

import memlab
from memlab.cli import options

SCHEMA_VERSION = 1


def _complete_name(incomplete: str) -> list[str]:
    """Complete a term or a kernel; dashes replace the blanks, at which a shell would split it."""
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
    explanation = memlab.explain(" ".join(name) if name else None)
    if as_json:
        import dataclasses
        import json

        document = {
            "schema_version": SCHEMA_VERSION,
            "entries": [dataclasses.asdict(entry) for entry in explanation.entries],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return

    from memlab.roofline.reports.glossary import glossary_list, glossary_pages
    from memlab.roofline.reports.parts import console

    layout = glossary_pages if name else glossary_list
    console().print(layout(explanation.entries))
