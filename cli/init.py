"""`memlab init FILE.cu`: write a memlab.toml for its kernels, to be corrected and kept."""

import os
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from memlab.cli import options
from memlab.cli.output import check_output, say, write_output
from memlab.errors import UsageError

DEFAULT_FILE = Path("memlab.toml")


def init(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.cu[:ENTRY]", help="The file, or one kernel in it."),
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="What to write; the schema goes beside."
        ),
    ] = DEFAULT_FILE,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what exists.")] = False,
    define: options.Defines = None,
    include: options.Include = None,
    std: options.Std = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
) -> None:
    """Write a memlab.toml for the kernels of a file, from the parameters they take.

    Then 'memlab run NAME' in that folder runs one. Sizes are a guess: put yours.
    """
    from memlab import lab
    from memlab.kernels import own, project, scaffold

    place = own.split(target)
    if place is None:
        raise UsageError(f"{target!r} is no file of CUDA C++: name one, as in saxpy.cu:saxpy")
    schema = output.parent / project.SCHEMA_FILE
    keeps_schema = _holds(schema, project.schema_text())
    _check(output, force)
    if not keeps_schema:
        if schema.exists() and not schema.is_file():
            raise UsageError(f"{schema} is no file, and the schema belongs there: move it away")
        check_output(schema, force)
    chosen = own.configured(
        own.OwnKernel(*place), {"defines": define, "include": include, "std": std}
    )
    found = lab.signatures(chosen, device=device)
    text = scaffold.document(own.moved(chosen, output.parent), found, own.read_source(chosen))
    write_output(output, text, force)
    if not keeps_schema:
        write_output(schema, project.schema_text(), force)
    if not quiet:
        first = next(iter(tomllib.loads(text)["kernels"]))
        say(f"wrote {output}: correct the sizes, then 'memlab run {first}'")


def _check(output: Path, force: bool) -> None:
    if os.path.lexists(output) and output.is_file() and not force:
        raise UsageError(
            f"{output} exists: add --force to overwrite it, or write to another file with "
            "--output and copy the tables that are missing"
        )
    check_output(output, force)


def _holds(path: Path, text: str) -> bool:
    try:
        whole = text.encode()  # of another size, or a pipe, it is not even opened
        return path.is_file() and path.stat().st_size == len(whole) and path.read_bytes() == whole
    except (OSError, ValueError):
        return False
