"""The parameters of kernels in Python functions: their arguments, bound by name and parsed."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import (
    POINTERS,
    STRUCTURE,
    AliasSpecification,
    ArraySpecification,
    Specification,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

    from memlab.kernels.user.kernel import UserKernel


@dataclass(frozen=True)
class PythonSource:
    """The file of a Python function.

    Attributes:
        path: Its path, from the current folder on if it lies in it, or the name that Python gives
            to a cell of a notebook.
        text: Its text; empty where Python does not know it.
        is_file: Whether there is such a file.
    """

    path: str
    text: str
    is_file: bool


def source_of(code: CodeType) -> PythonSource:
    """The file of a function, or the cell of a notebook that defines it."""
    path, text = Path(code.co_filename), "".join(linecache.getlines(code.co_filename))
    with suppress(ValueError, OSError):
        path = path.resolve().relative_to(Path.cwd().resolve())
    return PythonSource(str(path), text, path.is_file())


def parsed_arguments(kernel: UserKernel, parameters: Sequence[str]) -> dict[str, Specification]:
    """The arguments of a kernel by the names of its parameters.

    Args:
        kernel: The kernel, with its expressions computed.
        parameters: The names of the parameters that take arguments.

    Raises:
        UsageError: There are too many or too few, or one is malformed.
    """
    listed = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
    if parameters:
        listed += f" ({', '.join(parameters)})"
    if len(kernel.args) != len(parameters):
        raise UsageError(
            f"{kernel.entry} takes {listed}, got {len(kernel.args)}: give one in args for each; "
            "their types decide what is compiled"
        )
    parsed = {}
    for number, (name, argument) in enumerate(zip(parameters, kernel.args, strict=True)):
        try:
            parsed[name] = parse_specification(argument) if isinstance(argument, str) else argument
        except UsageError as error:
            raise UsageError(f"argument {number} ({name}): {error}") from None
        value = parsed[name]
        if isinstance(value, ArraySpecification) and value.dtype == STRUCTURE:
            raise UsageError(
                f"argument {number} ({name}) is an array of structures, and memlab passes these to "
                "CUDA C++ alone: pass one array for each member"
            )
        check_whole(value, f"argument {number} ({name})")
        if isinstance(value, ArraySpecification) and value.dtype == POINTERS:
            raise UsageError(
                f"argument {number} ({name}) is an array of pointers, and memlab passes these to "
                "CUDA C++ alone: pass one array with a dimension more"
            )
    return parsed


def check_whole(value: Specification, label: str) -> None:
    """Refuse a pointer into an array.

    Raises:
        UsageError: It is one; `label` names the argument.
    """
    if isinstance(value, ArraySpecification | AliasSpecification) and value.start:
        raise UsageError(
            f"{label} points into an array, {value.text!r}, and memlab passes such pointers to "
            "CUDA C++ alone: pass the whole array, and add the offset in the kernel"
        )


def with_macros(options: Mapping[str, Any], macros: Mapping[str, Any]) -> dict[str, Any]:
    """Launch options with more macros, whose values are lists in a sweep."""
    given = options.get("defines")
    if not macros:
        return dict(options)
    if isinstance(given, Mapping | None):
        return {**options, "defines": {**(given or {}), **macros}}
    texts = [given] if isinstance(given, str) else list(given)
    return {
        **options,
        "defines": {**dict(text.partition("=")[::2] for text in texts), **macros},
    }


def number_of(text: str) -> bool | int | float:
    """A number as Python reads it, without a type of its own."""
    plain = text.strip().lower()
    if plain in ("true", "false"):
        return plain == "true"
    try:
        return int(plain, 0)
    except ValueError:
        return float(plain)


def one_line(error: BaseException) -> str:
    """The message of a package's error, on one line."""
    text: Any = " ".join(str(error).split())
    return text or type(error).__name__
