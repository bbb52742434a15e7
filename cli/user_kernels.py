"""User kernels on the command line: `FILE.cu:ENTRY`, and names in `memlab.toml`."""

import inspect
import shlex
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from memlab.cli import options
from memlab.cli.output import print_message
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.kernels.user.kernel import UserKernel

KERNEL_PLACEHOLDER = "FILE.cu:ENTRY"
"""Stands for a user kernel in help and messages."""


TRUTH = "true|false"


def launch_options(
    *,
    symbols: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set a symbol for expressions in other options, as N=1M (K, M and G are 1024 "
            "and its powers): --grid 'ceil(N/256)', --arg 'f32[N]'. Expressions have "
            "+ - * / // % **, parentheses, ceil, floor, min and max; macros that are numbers "
            "are symbols, too.",
        ),
    ] = None,
    grid: Annotated[
        str | None, typer.Option("--grid", metavar="X[,Y[,Z]]", help="Blocks of the grid.")
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", metavar="X[,Y[,Z]]", help="Threads per block.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="X[,Y[,Z]]", help="Blocks of a thread block cluster, from sm_90."
        ),
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option("--shared", metavar="BYTES", help="Dynamic shared memory per block."),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="SPEC",
            help="An argument; repeat it in the kernel's order. TYPE=VALUE is a scalar, as "
            "f32=2.0; [in:|out:|inout:]TYPE[DIM,...][=FILL] an array that is only read, only "
            "written, or read and overwritten; TYPE[]=@FILE.npy an array in its file's shape; "
            "struct=VALUE,VALUE,... a structure, its numbers in order and an array for each of "
            "its pointers, or struct=@FILE.npy its bytes; @NAME the array of another argument "
            "once more; null a null pointer; a number alone a scalar of the parameter's type. "
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
            help="Fill a __constant__ or __device__ array; FILL as for --arg.",
        ),
    ] = None,
    defines: options.DefinesOption = None,
    include: options.IncludeOption = None,
    root: options.RootOption = None,
    std: options.StdOption = None,
    max_registers: Annotated[
        str | None,
        typer.Option(
            "--max-registers",
            "--maxrregcount",
            "-maxrregcount",
            metavar="N",
            help="The most registers per thread.",
        ),
    ] = None,
    use_fast_math: Annotated[
        bool | None,
        typer.Option(
            "--use_fast_math",
            "-use_fast_math",
            help="Faster and less exact float32 functions, quotients and roots.",
        ),
    ] = None,
    ftz: Annotated[
        str | None,
        typer.Option("--ftz", "-ftz", metavar=TRUTH, help="Count float32 below 2^-126 as 0."),
    ] = None,
    prec_div: Annotated[
        str | None,
        typer.Option("--prec-div", "-prec-div", metavar=TRUTH, help="Exact float32 quotients."),
    ] = None,
    prec_sqrt: Annotated[
        str | None,
        typer.Option("--prec-sqrt", "-prec-sqrt", metavar=TRUTH, help="Exact float32 roots."),
    ] = None,
    fmad: Annotated[
        str | None,
        typer.Option("--fmad", "-fmad", metavar=TRUTH, help="Contract a * b + c to an FMA."),
    ] = None,
    ptxas_options: Annotated[
        list[str] | None,
        typer.Option(
            "--ptxas-options",
            "-Xptxas",
            metavar="-ON",
            help="Optimize the machine code, -O0 to -O3. [default: -O3]",
        ),
    ] = None,
    optimize: Annotated[
        str | None,
        typer.Option(
            "--optimize",
            "-O",
            metavar="N",
            help="No effect: nvcc's -O is for host code. For the kernel, use -Xptxas -ON.",
        ),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="IDX=@FILE.npy",
            help="Verify an output: the argument's number, from 0, or its name, and its "
            "expected content.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="FILE.py:FUNCTION",
            help="Verify with a Python function, which takes the kernel's arguments as NumPy "
            "arrays and numbers and returns the outputs, None for one that is not to be "
            "verified, or overwrites its arrays. This runs the code of that file; no other "
            "option does.",
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
    restrict: Annotated[
        list[str] | None,
        typer.Option(
            "--restrict",
            metavar="CONDITION",
            help="Refuse symbols that do not meet it, as 'B*TILE <= 1024'; sweep skips them.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Return the launch options by the names of `memlab.kernels.user.kernel.LAUNCH_OPTIONS`."""
    given = locals()
    _note_host_optimization(given.pop("optimize"))
    return {name: value or None for name, value in given.items()}


def _note_host_optimization(level: str | None) -> None:
    """Accept nvcc's `-O`, which command lines of nvcc often have, and say what it does.

    Raises:
        UsageError: It is no level.
    """
    if level is None:
        return
    if level not in ("0", "1", "2", "3"):
        raise UsageError(f"-O takes a level from 0 to 3, got {level!r}: use -Xptxas -O3")
    print_message(
        f"-O{level} is for host code in nvcc, and memlab compiles none: for the kernel, use "
        f"-Xptxas -O{level}"
    )


LAUNCH_PARAMETERS = tuple(inspect.signature(launch_options).parameters.values())
"""The launch options as parameters of a command."""


def option_spellings(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Return the spellings of an option: `--define`, `-D`."""
    option = get_args(parameter.annotation)[1]
    # Within `Annotated`, Typer takes the first spelling for its argument `default`.
    spellings = (option.default, *(option.param_decls or ()))
    return tuple(name for name in spellings if name is not ...) or (
        "--" + parameter.name.replace("_", "-"),
    )


LAUNCH_SPELLINGS = frozenset(
    name for parameter in LAUNCH_PARAMETERS for name in option_spellings(parameter)
)
"""The spellings of all launch options."""


def without_launch_spellings(options: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return a command's options without the spellings of launch options.

    A spelling that both have belongs to the launch. An option without another spelling is left
    out.
    """
    remaining = []
    for parameter in options:
        kept = [name for name in option_spellings(parameter) if name not in LAUNCH_SPELLINGS]
        if len(kept) == len(option_spellings(parameter)):
            remaining.append(parameter)
        elif kept:
            kind, option = get_args(parameter.annotation)[:2]
            option = copy(option)
            option.default, option.param_decls = kept[0], tuple(kept[1:])
            remaining.append(parameter.replace(annotation=Annotated[kind, option]))
    return remaining


def lookup_user_kernel(target: str) -> "UserKernel | None":
    """Find a user kernel; None where the target is neither a file nor in `memlab.toml`.

    Raises:
        UsageError: The current folder's `memlab.toml` cannot be used.
    """
    from memlab.kernels.user.project import find_user_kernel

    return find_user_kernel(target)


def project_kernel_names() -> list[str]:
    """Return the names in the current folder's `memlab.toml`; none where it cannot be used."""
    from memlab.kernels.user.project import read_user_kernels

    with suppress(UsageError):
        return list(read_user_kernels())
    return []


def with_launch_options(kernel: "UserKernel", values: dict[str, Any]) -> "UserKernel":
    """Apply the launch options of a command to a kernel.

    Args:
        kernel: The kernel, with its options from `memlab.toml`.
        values: All options of the command by name; those of the launch are removed.

    Raises:
        UsageError: An option has a wrong value.
    """
    from memlab.kernels.user.kernel import apply_launch_options

    chosen = {parameter.name: values.pop(parameter.name) for parameter in LAUNCH_PARAMETERS}
    return apply_launch_options(kernel, launch_options(**chosen))


def with_file_launch(kernel: "UserKernel", device: str | None, quiet: bool) -> "UserKernel":
    """Give a kernel the options that it lacks, from its launch in its file, and print them.

    Args:
        kernel: The kernel, with the options of the command line.
        device: The device to compile for.
        quiet: Whether to print nothing.

    Raises:
        UsageError: The file launches several kernels, or does not tell the launch completely.
    """
    from memlab.device.debug_info import file_launches

    if not file_launches.needs_launch(kernel):
        return kernel
    from memlab.device.devices import open_device
    from memlab.launching import launch_in_file

    properties = open_device(device).properties
    try:
        found = launch_in_file(kernel, properties)
    except file_launches.SeveralLaunches as several:
        for target in several.targets:
            typer.echo(f"memlab run {shlex.quote(target)}")
        raise
    if found is None or found.proposal is None:
        return kernel
    if not quiet:
        proposal = found.proposal
        how = " in a loop" if proposal.in_loop else ""
        how += f", but {proposal.doubt}" if proposal.doubt else ""
        print_message(
            f"line {found.line} launches it{how}: memlab run {file_launches.command_line(proposal)}"
        )
    return found.proposal.kernel


def launched_kernels(kernel: "UserKernel", device: str | None) -> "list[UserKernel]":
    """Return the kernels of a file whose launches it tells, and print what it does not tell.

    Raises:
        UsageError: The kernel is not named by its file, or no launch is known.
    """
    from memlab.device.debug_info import file_launches
    from memlab.device.devices import open_device

    if kernel.name or kernel.entry:
        raise UsageError(
            f"--all runs the kernels that a file launches, and {kernel.target} is one: "
            f"write {kernel.source} --all"
        )
    properties = open_device(device).properties
    found = file_launches.file_launches(kernel, properties)
    reasons = {launch.reason for launch in found.launches}
    if len(reasons) == 1 and "" not in reasons:  # such as a header that is missing
        raise UsageError(reasons.pop())
    for launch in found.launches:
        if launch.is_complete:
            continue
        if launch.symbols:
            lack = f"give {' '.join(f'--set {name}=1M' for name in launch.symbols)}"
        elif launch.proposal is not None and launch.proposal.gaps:
            number, reason = next(iter(launch.proposal.gaps.items()))
            lack = reason if number < 0 else f"argument {number} {reason}"
        elif launch.proposal is not None:
            lack = f"{launch.proposal.doubt}: name the kernel to run it"
        else:
            lack = launch.reason
        print_message(f"left out {kernel.source}:{launch.entry} (line {launch.line}): {lack}")
    complete = [
        launch.proposal.kernel
        for launch in found.launches
        if launch.is_complete and launch.proposal
    ]
    if found.stop:
        print_message(
            f"memlab followed {kernel.source} only {found.stop}: kernels that it launches later "
            f"are left out; name them, as in {kernel.source}:ENTRY"
        )
    elif not found.launches:
        raise UsageError(
            f"{kernel.source} launches no kernel: name one, as in {kernel.source}:ENTRY"
        )
    if not complete:
        raise UsageError(
            f"{kernel.source} tells no launch completely: give --grid, --block and --arg for one "
            "kernel"
        )
    return complete
