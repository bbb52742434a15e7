"""`memlab kernels`: what there is to run."""

from typing import TYPE_CHECKING

import typer

from memlab.cli import options
from memlab.cli.output import print_json
from memlab.text import printable

if TYPE_CHECKING:
    from memlab.kernels.kernel import Kernel

SCHEMA_VERSION = 1


def kernels(as_json: options.JsonOption = False) -> None:
    """List the kernels and the parameters of each, then those in the folder's memlab.toml."""
    from memlab.kernels.catalog import CATALOG
    from memlab.kernels.user.project import read_user_kernels as named_in_project

    own_kernels = named_in_project()

    if as_json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "kernels": [_document(kernel) for kernel in CATALOG.values()],
            "own_kernels": [
                {"name": name, "source": kernel.source, "entry": kernel.entry}
                for name, kernel in own_kernels.items()
            ],
        }
        print_json(document)
        return
    own = [
        f"{name}\n  In memlab.toml: {printable(kernel.source)}"
        for name, kernel in own_kernels.items()
    ]
    catalog = ["\n".join(_lines(kernel)) for kernel in CATALOG.values()]
    typer.echo("\n\n".join((*catalog, *own)))


def _document(kernel: "Kernel") -> dict[str, object]:
    return {
        "name": kernel.name,
        "summary": kernel.summary,
        "source_file": kernel.source_file,
        "parameters": [
            {
                "name": parameter.name,
                "help": parameter.help,
                "default": parameter.default,
                "default_text": parameter.default_label,
                "minimum": None if parameter.choices else parameter.minimum,
                "maximum": parameter.maximum,
                "choices": parameter.choices,
                "accepts": parameter.range_label,
            }
            for parameter in kernel.parameters
        ],
    }


def _lines(kernel: "Kernel") -> list[str]:
    """One kernel in plain text: its name, its summary, then a line a parameter."""
    return [
        kernel.name,
        f"  {kernel.summary}",
        *(
            f"  {parameter.option:<13}{parameter.help} [{parameter.default_label}]"
            for parameter in kernel.parameters
        ),
    ]
