"""Kernels of one's own on the command line: `FILE.cu:ENTRY`, and names in `memlab.toml`."""

import inspect
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from memlab.cli import options
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.kernels.user.kernel import UserKernel

KERNEL_PLACEHOLDER = "FILE.cu:ENTRY"
"""How help and messages write a kernel of one's own."""


def launch_options(
    *,
    grid: Annotated[
        str | None, typer.Option("--grid", metavar="X[,Y[,Z]]", help="Blocks of the grid.")
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", metavar="X[,Y[,Z]]", help="Threads of a block.")
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option("--shared", metavar="BYTES", help="Dynamic shared memory of a block."),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="SPEC",
            help="An argument; repeat it in the kernel's order. TYPE=VALUE is a scalar, as "
            "f32=2.0; [in:|out:|inout:]TYPE[DIM,...][=FILL] an array: what is read only, written "
            "only, or read and overwritten; TYPE[]=@FILE.npy one in its file's shape; "
            "struct=VALUE,VALUE,... a structure, its numbers in order, or struct=@FILE.npy its "
            "bytes; null a null pointer. "
            "TYPE: f16 bf16 f32 f64 i8 to i64 u8 to u64 bool. "
            "FILL: random (floats in [0, 1), whole numbers over their range; the default), "
            "zeros, ones, a number, arange, randint:LO:HI (up to HI - 1), uniform:LO:HI, "
            "@FILE.npy.",
        ),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option(
            "--const",
            metavar="NAME=FILL",
            help="Fill a __constant__ or __device__ array; FILL as of an argument.",
        ),
    ] = None,
    defines: options.DefinesOption = None,
    include: options.IncludeOption = None,
    std: options.StdOption = None,
    max_registers: Annotated[
        str | None,
        typer.Option("--max-registers", metavar="N", help="The most registers a thread may have."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="IDX=@FILE.npy",
            help="Verify an output: the argument's number, from 0, or its name, and what it "
            "must hold.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="FILE.py:FUNCTION",
            help="Verify by a Python function, which takes the kernel's arguments as NumPy "
            "arrays and numbers and returns the outputs, None for one that is not to be "
            "verified, or changes its arrays. It runs that file's code, which nothing else here "
            "does.",
        ),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            "--tolerance",
            metavar="REL",
            help="The largest relative error accepted. "
            "[default: f64 1e-10, f32 1e-4, f16 and bf16 1e-2, whole numbers 0]",
        ),
    ] = None,
) -> dict[str, Any]:
    """What can be chosen for a launch, by the names of `memlab.kernels.user.kernel.CHOICES`."""
    return {name: value or None for name, value in locals().items()}


LAUNCH_PARAMETERS = tuple(inspect.signature(launch_options).parameters.values())
"""The options as parameters of a command."""


def option_spellings(parameter: inspect.Parameter) -> tuple[str, ...]:
    """How an option is written: `--define`, `-D`."""
    option = get_args(parameter.annotation)[1]
    # Within `Annotated`, Typer takes the first spelling for its argument `default`.
    given = [each for each in (option.default, *(option.param_decls or ())) if each is not ...]
    return tuple(given) or ("--" + parameter.name.replace("_", "-"),)


LAUNCH_SPELLINGS = frozenset(
    name for parameter in LAUNCH_PARAMETERS for name in option_spellings(parameter)
)
"""How all of them are written."""


def without_launch_spellings(options: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """A command's own options as they stand beside those of a launch, which take precedence.

    What both would write alike is left to the launch; an option with no other spelling is gone.
    """
    left = []
    for parameter in options:
        kept = [each for each in option_spellings(parameter) if each not in LAUNCH_SPELLINGS]
        if len(kept) == len(option_spellings(parameter)):
            left.append(parameter)
        elif kept:
            kind, option = get_args(parameter.annotation)[:2]
            option = copy(option)
            option.default, option.param_decls = kept[0], tuple(kept[1:])
            left.append(parameter.replace(annotation=Annotated[kind, option]))
    return left


def lookup_user_kernel(target: str) -> "UserKernel | None":
    """The kernel that a target names; None where it is neither a file nor in `memlab.toml`.

    Raises:
        UsageError: The current folder's `memlab.toml` cannot be used.
    """
    from memlab.kernels.user.project import find_user_kernel

    return find_user_kernel(target)


def project_kernel_names() -> list[str]:
    """The names in the current folder's `memlab.toml`; none where it cannot be used."""
    from memlab.kernels.user.project import read_user_kernels

    with suppress(UsageError):
        return list(read_user_kernels())
    return []


def with_launch_options(kernel: "UserKernel", given: dict[str, Any]) -> "UserKernel":
    """Take a kernel's choices out of the options of a command.

    Args:
        kernel: The kernel, with what `memlab.toml` says of it.
        given: All options by name; those of the launch are removed.

    Raises:
        UsageError: One has a value that it cannot have.
    """
    from memlab.kernels.user.kernel import apply_launch_options

    return apply_launch_options(
        kernel, launch_options(**{each.name: given.pop(each.name) for each in LAUNCH_PARAMETERS})
    )
