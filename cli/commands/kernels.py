"""`memlab kernels`: the kernels that can be run by name."""

from shutil import get_terminal_size
from typing import TYPE_CHECKING

import memlab
from memlab.cli import options
from memlab.cli.output import print_json
from memlab.cli.terminal_text import echo

if TYPE_CHECKING:
    from memlab.kernels.kernel import Kernel

SCHEMA_VERSION = 1


def kernels(as_json: options.JsonOption = False) -> None:
    """List the kernels and the parameters of each, then those in the folder's memlab.toml."""
    listed = memlab.kernels()
    if as_json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "kernels": [_document(kernel) for kernel in listed.catalog],
            "own_kernels": [
                {"name": name, "source": kernel.source, "entry": kernel.entry}
                for name, kernel in listed.user.items()
            ],
        }
        print_json(document)
        return

    from memlab.roofline.reports.kernels import kernels_text

    echo(kernels_text(listed.catalog, listed.user, get_terminal_size().columns))


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
