"""Options that several commands share, spelled once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from memlab.errors import UsageError


def inherit_options(context: typer.Context) -> None:
    """Pass options before a sub-command on to it: `memlab runs --store FILE delete 3`."""
    chosen = {name: value for name, value in context.params.items() if value}
    context.default_map = {context.invoked_subcommand or "": chosen}


def named_text(option: str, example: str) -> Callable[[str], str]:
    """Make a parser of a text that is not empty, as a shell's variable without a value would be."""

    def parse(text: str) -> str:
        if not text.strip():
            raise UsageError(f"{option} is empty: use {option} {example}, or leave it out")
        return text

    return parse


def complete_device(incomplete: str) -> list[str]:
    """Complete the name or file of a datasheet; a GPU's index is quicker to type."""
    from memlab.device.datasheets import loader

    files = sorted(path.name for path in Path().glob("*.toml") if path.name != "memlab.toml")
    return [name for name in (*loader.datasheet_names(), *files) if name.startswith(incomplete)]


DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME",
        help="A GPU (0, cuda:0) or a datasheet (h200, a100, my-gpu.toml). "
        "[default: $MEMLAB_DEVICE, else the first GPU, else h200]",
        autocompletion=complete_device,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV, in base units.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: JSON or CSV, by extension.",
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", "--force", help="Overwrite files that exist.")
]
PictureOverwriteOption = Annotated[
    bool,
    typer.Option(
        "--overwrite", "--force", help="Overwrite files that memlab did not make; its own it does."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="The file that keeps runs. [default: $MEMLAB_STORE, else one in your data folder]",
    ),
]

DefinesOption = Annotated[
    list[str] | None,
    typer.Option("--define", "-D", metavar="NAME[=VALUE]", help="Define a macro."),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", "-I", metavar="DIR", help="Search DIR for header files too."),
]
RootOption = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="The project's folder: headers below it may be read, missing ones are found there. "
        "[default: the file's Git repository]",
    ),
]
StdOption = Annotated[
    str | None,
    typer.Option(
        "--std", "-std", metavar="DIALECT", help="c++11, c++14, c++17 or c++20. [default: c++17]"
    ),
]


def _parse_seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if seed < 0:
        raise UsageError(f"seed must be a whole number, 0 or more, got {text!r}: use --seed 0")
    return seed


SeedOption = Annotated[
    int, typer.Option(parser=_parse_seed, metavar="S", help="Seed of the random inputs.")
]


def _parse_timeout(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"timeout must be seconds, got {text!r}: use --timeout 60") from None


def _parse_memory_size(text: str) -> int:
    from memlab.device.budget import parse_size

    return parse_size(text)


TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=_parse_timeout,
        metavar="SECONDS",
        help="Stop a launch that takes longer, in the emulator or on a GPU. [default: 60]",
    ),
]
MemoryLimitOption = Annotated[
    int | None,
    typer.Option(
        "--memory-limit",
        parser=_parse_memory_size,
        metavar="SIZE",
        help="Memory that the emulator may take, such as 4GiB. [default: the free memory]",
    ),
]
