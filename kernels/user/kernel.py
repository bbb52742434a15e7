"""Kernels of one's own: a file, a name in it, and how to launch it, as they were typed.

With the signature that the compiler gives, `own_launch` makes a `Launch` of such a record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.user.arguments import ExpectedOutput, Specification
from memlab.kernels.user.launch_options import OPTION_READERS

MAX_SOURCE_BYTES = 16 << 20
"""No source is longer; what is, is data that was named by mistake."""

_SOURCE_SUFFIX = re.compile(r"\.(?:cu|cuh|cpp|cc|cxx|hpp|h)(?=:|$)")
_DEFINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class UserKernel:
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
        expect: What outputs must hold, `IDX=@FILE.npy` by the number or name of the argument; or
            arrays, from Python.
        reference: A Python function that computes the outputs, `FILE.py:FUNCTION`, or itself;
            empty for none.
        tolerance: The largest relative error allowed; None for `own_launch.TOLERANCES`.
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
    expect: tuple[str | ExpectedOutput, ...] = ()
    reference: str | Callable[..., Any] = ""
    tolerance: float | None = None

    @property
    def target(self) -> str:
        """What stands for it on the command line."""
        return self.name or ":".join(filter(None, (self.source, self.entry)))


LAUNCH_OPTIONS = tuple(
    each.name for each in fields(UserKernel) if each.name not in ("source", "entry", "name")
)
"""What can be chosen for a launch, besides the kernel itself."""
_CUMULATIVE_OPTIONS = ("defines", "include", "constants", "expect")
"""Choices that add to what was chosen before; of a name given twice, the last counts."""


def split_target(target: str) -> tuple[str, str] | None:
    """Split `FILE.cu:ENTRY` into the file and the entry; None where it names no source file.

    The entry is a C++ name, which holds colons itself; where a path does too, the first file that
    is there is meant.
    """
    parts = [
        (target[: match.end()], target[match.end() + 1 :].strip().lstrip(":"))
        for match in _SOURCE_SUFFIX.finditer(target)
    ]
    return next((each for each in parts if _is_file(Path(each[0]))), parts[0] if parts else None)


def apply_launch_options(kernel: UserKernel, given: Mapping[str, Any]) -> UserKernel:
    """Give a kernel with choices made, or made anew.

    Args:
        kernel: It stays as it is.
        given: Values by the names of `CHOICES`, as from Python, TOML or words; None chooses
            nothing. `grid` and `block` are a number, up to three, or `X,Y,Z`; `args` texts or what
            `given.argument` takes; `defines` texts, or values by name; `expect` texts, or arrays
            by the outputs' names; `reference` a text or a function.

    Raises:
        UsageError: There is no such choice, or it cannot have such a value.
    """
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name not in LAUNCH_OPTIONS:
            raise UsageError(
                f"a kernel of one's own has no choice {name!r}: "
                f"{suggest_nearest(name, LAUNCH_OPTIONS)}"
            )
        if value is None:
            continue
        read = OPTION_READERS[name](name.replace("_", "-"), value)
        changes[name] = (*getattr(kernel, name), *read) if name in _CUMULATIVE_OPTIONS else read
    return replace(kernel, **changes)


def with_relative_paths(kernel: UserKernel, folder: Path) -> UserKernel:
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


def read_source(kernel: UserKernel) -> str:
    """Read the file of a kernel.

    Raises:
        UsageError: There is no such file, or it is too long.
    """
    path = Path(kernel.source)
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file: name one, as in saxpy.cu:saxpy")
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise UsageError(
                f"{path} has {path.stat().st_size} bytes; a source has at most "
                f"{MAX_SOURCE_BYTES}: name the file with the kernel's text"
            )
        # Comments in another encoding are no reason to refuse: C++ itself needs ASCII alone.
        # Some editors begin a file with a mark, which is no part of its first line.
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {kernel.source} ({reason}): check its name") from None


def parse_defines(kernel: UserKernel) -> dict[str, str]:
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


def compile_options(kernel: UserKernel) -> tuple[str, ...]:
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
