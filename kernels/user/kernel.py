"""User kernels: a source file, a kernel in it, and its launch options, as the user gave them.

`launch.make_user_launch` makes a `Launch` of such a record and the compiled kernel's signature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.user.arguments.layout import ArgumentLayout
from memlab.kernels.user.arguments.specifications import (
    ExpectedOutput,
    GivenConstant,
    Specification,
)
from memlab.kernels.user.compile_commands import project_flags
from memlab.kernels.user.compiled_source import (
    CompiledSource,
    is_binary_file,
    is_compiled_file,
)
from memlab.kernels.user.compiler_flags import flag_options
from memlab.kernels.user.launch_options import CPP_STANDARDS, OPTION_READERS

MAX_SOURCE_BYTES = 16 << 20
"""The longest source file that is read; a longer file is data that was named by mistake."""

MAX_BINARY_BYTES = 1 << 30
"""The longest file with machine code that is read; the largest libraries have about that."""

_SOURCE_SUFFIX = re.compile(
    r"\.(?:cu|cuh|cpp|cc|cxx|hpp|h|py|ptx|cubin|fatbin|o|a|so(?:\.\d+)*|exe|out)(?=:|$)"
)
_FOLDER_AND_NAME = re.compile(r"[^:]*/[^:/]+(?=:|$)")
_DEFINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class UserKernel:
    """A user kernel and its launch options.

    Attributes:
        source: Path of the file with the CUDA C++ text.
        entry: The kernel's C++ name (`saxpy`, `space::saxpy`, `sgemm<32>`); empty for the only
            kernel in the file.
        name: The kernel's name in `memlab.toml`; empty if it was named by file and entry.
        symbols: Symbols that other options may use in expressions, `NAME=EXPRESSION`.
        grid: Blocks in x, y and z; one to three numbers or expressions, or none if not given.
        block: Threads of a block in x, y and z; likewise.
        cluster: Blocks of a thread block cluster in x, y and z; likewise; none if not given.
        shared: Dynamic shared memory of a block, bytes, or an expression.
        defines: Preprocessor definitions, `NAME` or `NAME=VALUE`.
        include: Folders in which to look for header files.
        root: The project's folder: headers anywhere below it may be read, and those that are found
            nowhere else are looked for there; empty for none.
        std: The C++ standard, one of `CPP_STANDARDS`; empty for the compiler's default.
        max_registers: The most registers per thread, or an expression; None leaves it to the
            compiler.
        use_fast_math: Whether float32 functions, quotients and roots may be faster and less exact.
        ftz: Whether float32 numbers below 2^-126 count as 0; None leaves this and what follows to
            the compiler.
        prec_div: Whether float32 quotients are exact to rounding.
        prec_sqrt: Whether float32 roots are exact to rounding.
        fmad: Whether products and sums are contracted to FMAs.
        ptxas_options: The optimization of ptxas, `-O0` to `-O3`; empty for its default, `-O3`.
        args: A specification for each argument, as text or parsed: see `specifications`.
        constants: The fills of `__constant__` and `__device__` arrays, `NAME=FILL`, or values from
            Python.
        expect: Expected values of outputs: `IDX=@FILE.npy` by the argument's number or name, or
            arrays from Python.
        reference: A Python function that computes the outputs, as `FILE.py:FUNCTION` or the
            function itself; empty for none.
        tolerance: The largest relative error allowed; None for `launch.DEFAULT_TOLERANCES`.
        restrict: Conditions that the symbols must meet, such as `B*TILE <= 1024`.
        compiled: The compiled kernel, where a front end made it in memory; None for the file.
        code: What stands in place of the file: CUDA C++ text, or a kernel object of a Python
            package (`kernels.python.front_ends`); None for the file.
        objects: Options of a package that no text tells, with their names: a grid that is a
            function.
        layout: How a package lays out `args`; None for one argument for each parameter.

    `symbols.evaluated` computes all expressions.
    """

    source: str
    entry: str = ""
    name: str = ""
    symbols: tuple[str, ...] = ()
    grid: tuple[int | str, ...] = ()
    block: tuple[int | str, ...] = ()
    cluster: tuple[int | str, ...] = ()
    shared: int | str = 0
    defines: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    root: str = ""
    std: str = ""
    max_registers: int | str | None = None
    use_fast_math: bool = False
    ftz: bool | None = None
    prec_div: bool | None = None
    prec_sqrt: bool | None = None
    fmad: bool | None = None
    ptxas_options: tuple[str, ...] = ()
    args: tuple[str | Specification, ...] = ()
    constants: tuple[str | GivenConstant, ...] = ()
    expect: tuple[str | ExpectedOutput, ...] = ()
    reference: str | Callable[..., Any] = ""
    tolerance: float | None = None
    restrict: tuple[str, ...] = ()
    compiled: CompiledSource | None = None
    code: Any = None
    objects: tuple[tuple[str, Any], ...] = ()
    layout: ArgumentLayout | None = None

    @property
    def target(self) -> str:
        """The kernel's name on the command line."""
        return self.name or ":".join(filter(None, (self.source, self.entry)))


LAUNCH_OPTIONS = tuple(
    option.name
    for option in fields(UserKernel)
    if option.name not in ("source", "entry", "name", "compiled", "code", "objects", "layout")
)
"""The launch options: all fields but those that name the kernel itself."""
_CUMULATIVE_OPTIONS = ("symbols", "defines", "include", "constants", "expect", "restrict")
"""Options whose values are appended to earlier ones; of a name given twice, the last counts."""


def split_target(target: str) -> tuple[str, str] | None:
    """Split `FILE.cu:ENTRY` into the file and the entry; None if it names no source file.

    Both the path and the entry, a C++ name, may contain colons: the first split whose file exists
    is taken. A program without a suffix is named with its folder, `./app:saxpy`.
    """
    splits = [
        (target[: match.end()], target[match.end() + 1 :].strip().lstrip(":"))
        for match in (*_SOURCE_SUFFIX.finditer(target), *_program(target))
    ]
    existing = [split for split in splits if _is_file(Path(split[0]))]
    return next(iter(existing or splits), None)


def _program(target: str) -> Iterator[re.Match[str]]:
    """The file of a target without a suffix, if it is a program: `./app:saxpy`."""
    match = _FOLDER_AND_NAME.match(target)
    if match and is_binary_file(match[0]):
        yield match


def apply_launch_options(kernel: UserKernel, options: Mapping[str, Any]) -> UserKernel:
    """Return a kernel with launch options set or changed.

    Args:
        kernel: The kernel; it is not modified.
        options: Values by the names of `LAUNCH_OPTIONS`, as Python, TOML or the command line
            give them; None leaves an option as it is. `grid`, `block` and `cluster` are a number, a
            sequence of up to three, or `X,Y,Z`, and may be expressions; `args` are texts or
            values that `python_values.convert_argument` takes; `symbols` and `defines` are texts
            or values by name;
            `constants` are texts, or fills and arrays by the variables' names;
            `expect` are texts or arrays by the outputs' names; `reference` is a text or a
            function.

    Raises:
        UsageError: There is no such option, or it does not take such a value.
    """
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name not in LAUNCH_OPTIONS:
            raise UsageError(
                f"a user kernel has no launch option {name!r}: "
                f"{suggest_nearest(name, LAUNCH_OPTIONS)}"
            )
        if value is None:
            continue
        read = OPTION_READERS[name](name.replace("_", "-"), value)
        changes[name] = (*getattr(kernel, name), *read) if name in _CUMULATIVE_OPTIONS else read
    return replace(kernel, **changes)


def with_relative_paths(kernel: UserKernel, folder: Path) -> UserKernel:
    """Return a kernel with the paths of its source and headers relative to a folder.

    Raises:
        UsageError: A path is outside that folder.
    """

    def inside(path: str) -> str:
        try:
            return Path(path).resolve().relative_to(folder.resolve()).as_posix()
        except (OSError, ValueError):
            raise UsageError(
                f"{path} lies outside the folder {folder}: write the file next to it with --output"
            ) from None

    return replace(
        kernel,
        source=inside(kernel.source),
        include=tuple(map(inside, kernel.include)),
        root=inside(kernel.root) if kernel.root else "",
    )


def is_object(kernel: UserKernel) -> bool:
    """Whether a kernel is an object of a Python package, which only this process knows."""
    return kernel.code is not None and not isinstance(kernel.code, str)


def read_source(kernel: UserKernel) -> str:
    """Read the source text of a kernel; of one that comes compiled, its PTX, or any bytes.

    A kernel object of a Python package has none before it is compiled.

    Raises:
        UsageError: There is no such file, or it is too long.
    """
    if kernel.compiled is not None:
        return kernel.compiled.ptx
    if kernel.code is not None:
        return kernel.code if isinstance(kernel.code, str) else ""
    path = Path(kernel.source)
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file: name one, as in saxpy.cu:saxpy")
        most = MAX_BINARY_BYTES if is_binary_file(kernel.source) else MAX_SOURCE_BYTES
        if path.stat().st_size > most:
            raise UsageError(
                f"{path} has {path.stat().st_size} bytes; a source has at most {most}: name the "
                "file with the kernel's text"
            )
        if is_binary_file(kernel.source):
            return path.read_bytes().decode("latin-1")
        # Comments in another encoding are accepted: C++ itself needs only ASCII. Some editors
        # begin a file with a byte order mark, which is not part of its first line.
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {kernel.source} ({reason}): check its name") from None


def parse_defines(kernel: UserKernel) -> dict[str, str]:
    """Parse the preprocessor definitions into values by name; the default is 1, as in compilers.

    Raises:
        UsageError: A definition is malformed.
    """
    definitions = {}
    for text in kernel.defines:
        match = _DEFINE.fullmatch(text)
        if match is None:
            raise UsageError(f"-D {text!r} defines no C++ name: write -D NAME or -D NAME=VALUE")
        definitions[match[1]] = "1" if match[2] is None else match[2]
    return definitions


def compile_options(kernel: UserKernel) -> tuple[str, ...]:
    """The compiler options besides the definitions; each text is one option.

    Raises:
        UsageError: An include folder does not exist, or the kernel comes compiled and an option
            would change its compilation.
    """
    if is_compiled(kernel):
        return _assembler_options(kernel)
    folders = [("-I", folder) for folder in kernel.include]
    for option, folder in (*folders, *([("--root", kernel.root)] if kernel.root else [])):
        if not _is_folder(Path(folder)):
            raise UsageError(f"{option} {folder}: there is no such folder: check its name")
    project = project_flags(kernel.source)
    own = parse_defines(kernel)
    defines = (text for text in project.defines if re.split(r"[=(]", text)[0] not in own)
    std = kernel.std or (project.std if project.std in CPP_STANDARDS else "")
    return (
        f"-I{Path(kernel.source).parent}",
        *(f"-I{folder}" for folder in (*kernel.include, *project.include)),
        *([f"--root={kernel.root}"] if kernel.root else []),
        *(f"--specific-arch={each}" for each in project.architectures if each[-1].isalpha()),
        *(f"-D{text}" for text in defines),
        *([f"-std={std}"] if std else []),
        *([f"--maxrregcount={kernel.max_registers}"] if kernel.max_registers is not None else []),
        *flag_options(kernel),
    )


def is_compiled(kernel: UserKernel) -> bool:
    """Whether a kernel comes compiled: from a front end, or in a file with PTX."""
    return kernel.compiled is not None or is_compiled_file(kernel.source)


def _assembler_options(kernel: UserKernel) -> tuple[str, ...]:
    """The options that reach the assembler of PTX.

    Raises:
        UsageError: Another option is given.
    """
    late = replace(kernel, use_fast_math=False, ftz=None, prec_div=None, prec_sqrt=None, fmad=None)
    early = kernel.defines or kernel.include or kernel.root or kernel.std
    refused = early or flag_options(late) != flag_options(kernel)
    if refused and kernel.layout is None:  # else the package has taken them
        raise UsageError(
            f"{kernel.target} is compiled already: leave out -D, -I, --root, --std and the flags "
            "of arithmetic, and give them where the PTX is made"
        )
    return (
        *([f"--maxrregcount={kernel.max_registers}"] if kernel.max_registers is not None else []),
        *flag_options(late),
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
