"""The launch options of a user kernel: how their values are read and checked.

Values come as text from the command line, as TOML types from a file, or as Python objects.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fsdecode
from typing import Any

from memlab.errors import UsageError
from memlab.kernels.user import python_values
from memlab.kernels.user.arguments import ExpectedOutput, Specification

CPP_STANDARDS = ("c++11", "c++14", "c++17", "c++20")
"""The C++ standards that NVRTC documents."""
MAX_EXTENT = 2**31 - 1
"""The most blocks of a grid in x, on any GPU (CUDA C++ Programming Guide, technical
specifications)."""
MAX_REGISTERS_PER_THREAD = 255
"""The most registers per thread (CUDA C++ Programming Guide, technical specifications)."""
_MAX_SHOWN_CHARACTERS = 60
"""The longest text of a value that a message shows."""


def format_value(value: Any) -> str:
    """Format a value for a message; a long or multi-line one, such as an array, by its type."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print numbers of thousands of digits
        return python_values.describe_type(value)
    is_short = isinstance(value, str) or (len(text) <= _MAX_SHOWN_CHARACTERS and text.isprintable())
    return text if is_short else python_values.describe_type(value)


def parse_integers(value: Any) -> tuple[int, ...]:
    """Read whole numbers from `16,16`, 16 or (16, 16); empty for any other value."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(
            int(part, 0) if isinstance(part, str) else operator.index(part)
            for part in (parts if isinstance(parts, Sequence) else (parts,))
        )
    except (TypeError, ValueError):
        return ()


def _read_extents(what: str, value: Any) -> tuple[int, ...]:
    extents = parse_integers(value)
    if not 1 <= len(extents) <= 3 or min(extents) < 1 or max(extents) > MAX_EXTENT:
        raise UsageError(
            f"{what} takes one to three whole numbers from 1 to {MAX_EXTENT}, got "
            f"{format_value(value)}: "
            f"use --{what} 16 or --{what} 16,16"
        )
    return extents


def _integer_reader(least: int, most: int) -> Callable[[str, Any], int]:
    def read(what: str, value: Any) -> int:
        try:
            number = int(value, 0) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            number = least - 1
        if not least <= number <= most:
            raise UsageError(
                f"{what} must be a whole number from {least} to {most}, got {format_value(value)}: "
                f"use --{what} {max(least, 32)}"
            )
        return number

    return read


def _read_strings(what: str, value: Any) -> tuple[str, ...]:
    texts = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"{what} takes texts, got {format_value(text)}: write it in quotes")
    return texts


def _read_paths(what: str, value: Any) -> tuple[str, ...]:
    """Read texts or, from Python, paths."""
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return _read_strings(
        what, [fsdecode(part) if isinstance(part, PathLike) else part for part in parts]
    )


def _read_arguments(what: str, value: Any) -> tuple[str | Specification, ...]:
    """Read texts or, from Python, numbers and arrays."""
    arguments = []
    for number, argument in enumerate(value if isinstance(value, (list, tuple)) else (value,)):
        try:
            arguments.append(python_values.convert_argument(argument))
        except UsageError as error:
            raise UsageError(f"{what}[{number}]: {error}") from None
    return tuple(arguments)


def _read_defines(what: str, value: Any) -> tuple[str, ...]:
    """Read texts `NAME=VALUE`, or a mapping of names to values."""
    if not isinstance(value, Mapping):
        return _read_strings(what, value)
    for name, definition in value.items():
        if not isinstance(name, str) or not isinstance(definition, str | int | float | None):
            raise UsageError(
                f"{what} takes names with texts, numbers or None, got {name!r}: {definition!r}: "
                "write {'TILE': 32}"
            )
    return tuple(
        name if definition is None else f"{name}={_macro_value(definition)}"
        for name, definition in value.items()
    )


def _macro_value(value: str | float) -> str:
    """Write a value in C++; Booleans as numbers, which `#if` understands too."""
    return str(int(value) if isinstance(value, bool) else value)


def _read_standard(what: str, value: Any) -> str:
    if value not in CPP_STANDARDS:
        raise UsageError(
            f"{what} must be one of {', '.join(CPP_STANDARDS)}, got {format_value(value)}: use "
            f"--{what} c++17"
        )
    return str(value)


def _read_tolerance(what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(
            f"{what} must be a number, 0 or more, got {format_value(value)}: use --{what} 1e-4"
        )
    return number


def _read_expected_outputs(what: str, value: Any) -> tuple[str | ExpectedOutput, ...]:
    """Read texts `NAME=@FILE.npy`, or a mapping of outputs to arrays."""
    if not isinstance(value, Mapping):
        if not isinstance(value, (str, list, tuple)):
            raise UsageError(
                f"{what} takes texts or a mapping of outputs to arrays, got {format_value(value)}: "
                "write {'y': array}"
            )
        return _read_strings(what, value)
    return tuple(python_values.expected_output(which, array) for which, array in value.items())


def _read_reference(what: str, value: Any) -> str | Callable[..., Any]:
    """Read `FILE.py:FUNCTION` or, from Python, the function itself."""
    if callable(value):
        return value  # type: ignore[no-any-return]
    file, _, function = str(value).rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise UsageError(
            f"{what} names a function in a Python file, got {format_value(value)}: write "
            "FILE.py:FUNCTION"
        )
    return str(value)


OPTION_READERS: dict[str, Callable[[str, Any], Any]] = {
    "grid": _read_extents,
    "block": _read_extents,
    "shared": _integer_reader(0, MAX_EXTENT),
    "defines": _read_defines,
    "include": _read_paths,
    "std": _read_standard,
    "max_registers": _integer_reader(1, MAX_REGISTERS_PER_THREAD),
    "args": _read_arguments,
    "constants": _read_strings,
    "expect": _read_expected_outputs,
    "reference": _read_reference,
    "tolerance": _read_tolerance,
}
"""By option, the function that reads and checks its value; it takes the name for messages and the
value."""
