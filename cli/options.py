"""Options that several commands share, spelled once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def device_names(incomplete: str) -> list[str]:
    """Complete a device: the datasheets' names (a GPU's index is quicker typed)."""
    from memlab.device import datasheet

    return [name for name in datasheet.names() if name.startswith(incomplete)]


Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME",
        help="A GPU (0, cuda:0) or a datasheet (h200, a100, rtx3070). "
        "[default: $MEMLAB_DEVICE, else the first GPU, else h200]",
        autocompletion=device_names,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, in base units.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: JSON or CSV, by extension.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="The file that keeps runs. [default: $MEMLAB_STORE, else one in your data folder]",
    ),
]
