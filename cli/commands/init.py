"""`memlab init FILE.cu`: write a memlab.toml for the kernels of a file."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli import options
from memlab.cli.output import check_output, print_message, write_output
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.kernels.signature import Signature
    from memlab.kernels.user.kernel import UserKernel
    from memlab.kernels.user.proposals import ProposedLaunch
    from memlab.kernels.user.scaffold import KernelTable

DEFAULT_FILE = Path("memlab.toml")


def init(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.cu[:ENTRY]", help="The file, or one kernel in it; PTX too."),
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write; the schema goes next to it.",
        ),
    ] = DEFAULT_FILE,
    overwrite: options.OverwriteOption = False,
    define: options.DefinesOption = None,
    include: options.IncludeOption = None,
    root: options.RootOption = None,
    std: options.StdOption = None,
    device: options.DeviceOption = None,
    quiet: options.QuietOption = False,
) -> None:
    """Write a memlab.toml for the kernels of a file, from their parameters.

    Then 'memlab run NAME' in that folder runs one. Sizes are those of the launches in the file;
    others are guesses, and say so: correct them. An existing memlab.toml keeps its tables and gets
    the missing ones.
    """
    from memlab.kernels.user import kernel as user_kernel
    from memlab.kernels.user import project, scaffold

    place = user_kernel.split_target(target)
    if place is None or place[0].endswith(project.PYTHON_SUFFIX):
        raise UsageError(f"{target!r} is no file of CUDA C++: name one, as in saxpy.cu:saxpy")
    added_to = output.is_file() and not output.is_symlink() and not overwrite
    present = _existing_kernels(output) if added_to else {}
    check_output(output, overwrite or added_to)
    schema = output.parent / project.SCHEMA_FILE
    keeps_schema = _has_content(schema, project.schema_text()) or (added_to and schema.is_file())
    if not keeps_schema:
        if schema.exists() and not schema.is_file():
            raise UsageError(f"{schema} is no file, and the schema belongs there: move it away")
        check_output(schema, overwrite)
    chosen = user_kernel.apply_launch_options(
        user_kernel.UserKernel(*place),
        {"defines": define, "include": include, "root": root, "std": std},
    )
    signatures, proposals = _kernels_and_launches(chosen, device)
    moved, source = (
        user_kernel.with_relative_paths(chosen, output.parent),
        user_kernel.read_source(chosen),
    )
    tables = scaffold.kernel_tables(moved, signatures, source, proposals, present, output.parent)
    if added_to:
        text = _append_tables(output, present, tables)
    else:
        text = scaffold.project_file_text(tables)
    write_output(output, text, overwrite or added_to)
    if not keeps_schema:
        write_output(schema, project.schema_text(), overwrite)
    if not quiet:
        written = [table for table in tables if table.name]
        did = f"added to {output}" if added_to else f"wrote {output}"
        is_told = all(table.is_told for table in written)
        do = "all sizes are the file's:" if is_told else "correct the sizes, then"
        print_message(f"{did}: {do} 'memlab run {written[0].name}'")


def _kernels_and_launches(
    kernel: "UserKernel", device: str | None
) -> "tuple[tuple[Signature, ...], dict[str, ProposedLaunch]]":
    """The kernels of a file, those that its launches make of templates among them.

    Returns:
        The signatures, and by their names in the compiled code the launches.
    """
    from dataclasses import replace

    from memlab.device.debug_info.file_launches import file_launches
    from memlab.device.devices import open_device
    from memlab.kernels.user.kernel import is_compiled
    from memlab.launching import kernel_signatures

    properties = open_device(device).properties
    launches = () if is_compiled(kernel) else file_launches(kernel, properties).launches
    made = [
        (signature, launch.proposal)
        for launch in launches
        if launch.proposal is not None
        for signature in kernel_signatures(replace(kernel, entry=launch.entry), device)
    ]
    proposals = {signature.linkage_name: proposal for signature, proposal in made}
    launched = {signature.linkage_name: signature for signature, _ in made}
    try:
        signatures = kernel_signatures(kernel, device)
    except UsageError:
        if not launched:
            raise
        signatures = ()
    own = {signature.linkage_name for signature in signatures}
    more = (signature for name, signature in launched.items() if name not in own)
    return (*signatures, *more), proposals


def _existing_kernels(output: Path) -> "dict[str, UserKernel]":
    """Read the kernels of an existing file.

    Raises:
        UsageError: It cannot be used.
    """
    from memlab.kernels.user import project

    try:
        return project.read_user_kernels(output)
    except UsageError as error:
        raise UsageError(
            f"{output} exists, and no table can be added: {error}; or add --overwrite to replace it"
        ) from None


def _append_tables(
    output: Path, present: "Mapping[str, UserKernel]", tables: "Sequence[KernelTable]"
) -> str:
    """Return the text of a file with tables appended.

    Raises:
        UsageError: The file has all of them already, or nothing can be appended to it.
    """
    if not tables:
        raise UsageError(
            f"{output} has these kernels already, and they are kept: correct it by hand, or add "
            "--overwrite to replace it"
        )
    old = output.read_bytes().decode()
    gap = "" if old.endswith("\n") or not old else "\n"
    text = "\n".join([old + gap, *(table.text for table in tables)])
    try:
        names = set(tomllib.loads(text.removeprefix("\ufeff"))["kernels"])
    except ValueError:  # such as after `kernels = {...}`, which no table can follow
        names = set()
    if names != {*present, *(table.name for table in tables if table.name)}:
        raise UsageError(
            f"{output} has its kernels in a form that no table can follow: write [kernels.NAME] "
            "above each, or write to another file with --output"
        )
    return text


def _has_content(path: Path, text: str) -> bool:
    try:
        whole = text.encode()  # a pipe, or a file of another size, is not opened
        return path.is_file() and path.stat().st_size == len(whole) and path.read_bytes() == whole
    except (OSError, ValueError):
        return False
