"""Kernels of one's own: a file, a name in it, and how to launch it, as data.

What was typed, or stands in `memlab.toml`, is an `OwnKernel`. With the signature that the compiler
gives it becomes a `Launch`, checked as those of the catalog are.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError, nearest
from memlab.kernels.arguments import DTYPES, Specification, bind, declared, fill
from memlab.kernels.choices import READERS
from memlab.kernels.kernel import check_geometry, check_memory
from memlab.kernels.launch import Buffer, Constant, Dim3, Launch

if TYPE_CHECKING:
    from memlab.kernels.kernel import Limits
    from memlab.kernels.signature import LaunchBounds, ModuleVariable, Signature

LARGEST_SOURCE_BYTES = 16 << 20
"""No source is longer; what is, is data that was named by mistake."""
TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""Relative errors that rounding may explain in sums of some thousand terms, by the type of an
output, where no bound is known; whole numbers must be equal."""

_SUFFIX = re.compile(r"\.(?:cu|cuh|cpp|cc|cxx|hpp|h)(?=:|$)")
_DEFINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class OwnKernel:
    """A kernel of one's own and its launch, as they were typed.

    Attributes:
        source: Path of the file with the CUDA C++ text.
        entry: The kernel as C++ names it (`saxpy`, `space::saxpy`, `sgemm<32>`); empty for the
            only one in the file.
        name: What stands for it on the command line; empty where that is the file and the entry.
        grid: Blocks in x, y and z, as many as were given.
        block: Threads of a block in x, y and z, as many as were given.
        shared: Dynamic shared memory of a block, bytes.
        defines: Preprocessor definitions, `NAME` or `NAME=VALUE`.
        include: Folders in which to look for header files.
        std: The dialect of C++, one of `STANDARDS`; empty for the usual one.
        max_registers: The most registers that a thread may have; None leaves it to the compiler.
        args: A specification for each argument, as text or taken apart: see `arguments`.
        constants: What `__constant__` and `__device__` arrays hold, `NAME=FILL`.
        expect: What outputs must hold, `IDX=@FILE.npy` by the number or name of the argument.
        reference: A Python function that computes the outputs, `FILE.py:FUNCTION`.
        tolerance: The largest relative error allowed; None for `TOLERANCES`.
    """

    source: str
    entry: str = ""
    name: str = ""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int = 0
    defines: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    std: str = ""
    max_registers: int | None = None
    args: tuple[str | Specification, ...] = ()
    constants: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    reference: str = ""
    tolerance: float | None = None

    @property
    def target(self) -> str:
        """What stands for it on the command line."""
        return self.name or ":".join(filter(None, (self.source, self.entry)))


CHOICES = tuple(
    each.name for each in fields(OwnKernel) if each.name not in ("source", "entry", "name")
)
"""What can be chosen for a launch, besides the kernel itself."""
_GATHERED = ("defines", "include", "constants", "expect")
"""Choices that add to what was chosen before; of a name given twice, the last counts."""


def split(target: str) -> tuple[str, str] | None:
    """Split `FILE.cu:ENTRY` into the file and the entry; None where it names no source file.

    The entry is a C++ name, which holds colons itself; where a path does too, the first file that
    is there is meant.
    """
    parts = [
        (target[: match.end()], target[match.end() + 1 :].strip().lstrip(":"))
        for match in _SUFFIX.finditer(target)
    ]
    return next((each for each in parts if _is_file(Path(each[0]))), parts[0] if parts else None)


def configured(kernel: OwnKernel, given: Mapping[str, Any]) -> OwnKernel:
    """Give a kernel with choices made, or made anew.

    Args:
        kernel: It stays as it is.
        given: Values by the names of `CHOICES`, as from Python, TOML or words; None chooses
            nothing. `grid` and `block` are a number, up to three, or `X,Y,Z`; `args` texts or what
            `given.argument` takes; `defines` texts, or values by name.

    Raises:
        UsageError: There is no such choice, or it cannot have such a value.
    """
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name not in CHOICES:
            raise UsageError(
                f"a kernel of one's own has no choice {name!r}: {nearest(name, CHOICES)}"
            )
        if value is None:
            continue
        read = READERS[name](name.replace("_", "-"), value)
        changes[name] = (*getattr(kernel, name), *read) if name in _GATHERED else read
    return replace(kernel, **changes)


def moved(kernel: OwnKernel, folder: Path) -> OwnKernel:
    """Give a kernel with the paths of its source and headers as they are from a folder.

    Raises:
        UsageError: One is outside that folder.
    """

    def inside(path: str) -> str:
        try:
            return Path(path).resolve().relative_to(folder.resolve()).as_posix()
        except (OSError, ValueError):
            raise UsageError(
                f"{path} lies outside the folder {folder}: write the file beside it with --output"
            ) from None

    return replace(kernel, source=inside(kernel.source), include=tuple(map(inside, kernel.include)))


def read_source(kernel: OwnKernel) -> str:
    """Read the file of a kernel.

    Raises:
        UsageError: There is no such file, or it is too long.
    """
    path = Path(kernel.source)
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file: name one, as in saxpy.cu:saxpy")
        if path.stat().st_size > LARGEST_SOURCE_BYTES:
            raise UsageError(
                f"{path} has {path.stat().st_size} bytes; a source has at most "
                f"{LARGEST_SOURCE_BYTES}: name the file with the kernel's text"
            )
        # Comments in another encoding are no reason to refuse: C++ itself needs ASCII alone.
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {kernel.source} ({reason}): check its name") from None


def defines(kernel: OwnKernel) -> dict[str, str]:
    """The preprocessor definitions, name to value; without a value it is 1, as compilers have it.

    Raises:
        UsageError: One is malformed.
    """
    found = {}
    for text in kernel.defines:
        match = _DEFINE.fullmatch(text)
        if match is None:
            raise UsageError(f"-D {text!r} defines no name of C++: write -D NAME or -D NAME=VALUE")
        found[match[1]] = "1" if match[2] is None else match[2]
    return found


def compile_options(kernel: OwnKernel) -> tuple[str, ...]:
    """What the compiler is told besides the definitions; each is one option, whatever it holds.

    Raises:
        UsageError: A folder to include from is not there.
    """
    for folder in kernel.include:
        if not _is_folder(Path(folder)):
            raise UsageError(f"-I {folder}: there is no such folder: check its name")
    return (
        f"-I{Path(kernel.source).parent}",
        *(f"-I{folder}" for folder in kernel.include),
        *([f"-std={kernel.std}"] if kernel.std else []),
        *([f"--maxrregcount={kernel.max_registers}"] if kernel.max_registers is not None else []),
    )


def launch(
    kernel: OwnKernel,
    signature: Signature,
    source: str,
    limits: Limits,
    *,
    executed: bool = True,
) -> Launch:
    """Make the launch of a kernel that a device can take; its outputs have no references yet.

    Args:
        kernel: What was chosen.
        signature: What the compiler says of it.
        source: The text of its file.
        limits: What the device allows.
        executed: Whether it will run; else neither a grid nor arguments are needed.

    Raises:
        UsageError: Something is missing, an argument does not suit its parameter, or the launch
            needs more than the device has.
    """
    name = _text(kernel.name or f"{Path(kernel.source).name}:{kernel.entry or signature.name}")
    if executed and signature.parameters and not kernel.args:
        raise UsageError(_without_arguments(kernel, signature))
    arguments = bind(kernel.args, signature.parameters) if kernel.args or executed else ()
    constants = _constants(kernel, signature)
    buffers = [each for each in arguments if isinstance(each, Buffer)]
    _check_names(buffers, signature)
    made = Launch(
        kernel=name,
        parameters=_shown(kernel),
        source=source,
        source_name=kernel.source,
        entry=signature.linkage_name,
        name_expression=signature.name_expression,
        defines=defines(kernel),
        compile_options=compile_options(kernel),
        grid=_dim3("grid", kernel.grid or (() if executed else (1,)), name),
        block=_dim3("block", kernel.block, name),
        dynamic_shared_bytes=kernel.shared,
        arguments=arguments,
        flop=None,
        compulsory_bytes=sum(each.nbytes * (2 if each.role == "inout" else 1) for each in buffers),
        references={},
        tolerance=kernel.tolerance or 0.0,
        tolerances={
            each.name: TOLERANCES.get(each.dtype, 0.0)
            for each in buffers
            if kernel.tolerance is None and each.role != "in"
        },
        error_scale="rms",
        constants=constants,
    )
    check_memory(made, limits)
    check_geometry(made, limits)
    _check_block(made, limits)
    _check_bounds(made, signature.bounds)
    return made


def _without_arguments(kernel: OwnKernel, signature: Signature) -> str:
    """What to say to who has only named a kernel yet."""
    by_hand = "give --grid, --block and one --arg for each, in this order"
    written = f"or let 'memlab init {shlex.quote(kernel.source)}' write them into a file"
    return f"{kernel.target} takes {declared(signature.parameters)}, and none are given: " + (
        by_hand if kernel.name else f"{by_hand}, {written}"
    )


def _constants(kernel: OwnKernel, signature: Signature) -> tuple[Constant, ...]:
    """What `--const` says, by the variables of the module; of a name given twice the last counts.

    Raises:
        UsageError: There is no such variable, it is none of numbers, or cannot be filled so.
    """
    variables = {each.name: each for each in signature.variables}
    found = {}
    for text in kernel.constants:
        name, equals, filling = (part.strip() for part in text.partition("="))
        if not equals:
            raise UsageError(f"--const {text!r} has no '=': write NAME=random or NAME=@FILE.npy")
        if name not in variables:
            hint = nearest(name, variables) if variables else "it declares none; leave out --const"
            raise UsageError(
                f"{kernel.source} has no __constant__ or __device__ variable {name!r}: {hint}"
            )
        found[name] = _constant(variables[name], filling)
    return tuple(found.values())


def _constant(variable: ModuleVariable, filling: str) -> Constant:
    dtype, shape = variable.dtype, variable.shape
    if not dtype and variable.member_dtype:  # of float4, rows of four floats
        dtype = variable.member_dtype
        element = Buffer("", (1,), DTYPES[dtype], "in").nbytes
        shape = (*shape, variable.nbytes // element // math.prod(shape))
    if not dtype:
        raise UsageError(
            f"--const {variable.name}: its elements are no numbers, which is all that memlab "
            "fills: leave it out"
        )
    try:
        how = fill(dtype, filling)
    except UsageError as error:
        raise UsageError(f"--const {variable.name} ({dtype}): {error}") from None
    return Constant(variable.linkage_name, shape or (1,), DTYPES[dtype], how)


def _check_names(buffers: Sequence[Buffer], signature: Signature) -> None:
    """Refuse a parameter named as a variable: each array is known by its name alone."""
    variables = {each.linkage_name for each in signature.variables}
    for each in buffers:
        if each.name in variables:
            raise UsageError(
                f"the parameter {each.name} has the name of a __constant__ or __device__ "
                "variable: rename one of them"
            )


def _check_block(launch: Launch, limits: Limits) -> None:
    most = max(
        limits.max_shared_memory_per_block_bytes, limits.max_shared_memory_per_block_optin_bytes
    )
    for value, what, allowed, cure in (
        (launch.threads_per_block, "threads", limits.max_threads_per_block, "--block"),
        (launch.dynamic_shared_bytes, "bytes of dynamic shared memory", most, "--shared"),
    ):
        if value > allowed:
            raise UsageError(
                f"a block has {value} {what}; {limits.name} allows {allowed}: use a smaller {cure}"
            )


def _check_bounds(launch: Launch, bounds: LaunchBounds) -> None:
    """Refuse a block that the kernel was not compiled for, as a GPU's driver does."""
    if bounds.block not in (None, launch.block):
        demanded = ",".join(map(str, bounds.block))
        raise UsageError(
            f"{launch.kernel} is declared __block_size__, for blocks of {demanded} threads in x, "
            f"y, z, not {','.join(map(str, launch.block))}: use --block {demanded}"
        )
    if 0 < bounds.most_threads < launch.threads_per_block:
        raise UsageError(
            f"a block has {launch.threads_per_block} threads; {launch.kernel} is declared "
            f"__launch_bounds__({bounds.most_threads}), and a GPU refuses more: use a smaller "
            "--block, or raise the bound"
        )


def _shown(kernel: OwnKernel) -> dict[str, int | str]:
    """What was chosen, as it is kept with the run: all that tells one launch from another."""
    shown: dict[str, int | str] = {
        "grid": "x".join(map(str, kernel.grid)),
        "block": "x".join(map(str, kernel.block)),
        "shared": kernel.shared,
        "defines": " ".join(kernel.defines),
        "std": kernel.std,
        "max_registers": kernel.max_registers or 0,
        "args": " ".join(each if isinstance(each, str) else each.text for each in kernel.args),
        "constants": " ".join(kernel.constants),
    }
    return {
        name: _text(value) if isinstance(value, str) else value
        for name, value in shown.items()
        if value
    }


def _text(words: str) -> str:
    """Words as text that can be stored: the system's may hold bytes that are none."""
    return words.encode(errors="replace").decode()


def _dim3(what: str, extents: tuple[int, ...], name: str) -> Dim3:
    if not extents:
        raise UsageError(
            f"{name} has no {what}: add --{what} X[,Y[,Z]], "
            + ("its blocks" if what == "grid" else "the threads of a block")
        )
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long a name
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
