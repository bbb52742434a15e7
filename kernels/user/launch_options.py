"""The launch options of a user kernel: how their values are read and checked.

Values come as text from the command line, as TOML types from a file, or as Python objects.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fsdecode
from typing import Any

from memlab.errors import UsageError
from memlab.kernels.user import expressions
from memlab.kernels.user.arguments import python_values
from memlab.kernels.user.arguments.specifications import (
    ExpectedOutput,
    GivenConstant,
    Specification,
)
from memlab.kernels.user.compiler_flags import SWITCHES

CPP_STANDARDS = ("c++11", "c++14", "c++17", "c++20")
"""The C++ standards that NVRTC documents."""
MAX_EXTENT = 2**31 - 1
"""The most blocks of a grid in x, on any GPU (CUDA C++ Programming Guide, technical
specifications)."""
MAX_REGISTERS_PER_THREAD = 255
"""The most registers per thread (CUDA C++ Programming Guide, technical specifications)."""
_PTXAS_LEVEL = re.compile(r"(?:-O|--?opt-level[= ])([0-3])")
_PTXAS_REPORTS = ("-v", "--verbose", "-warn-spills", "--warn-on-spills")
"""Options with which ptxas prints what memlab reports in any case."""
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


def _read_extents(what: str, value: Any) -> tuple[int | str, ...]:
    """Read one to three whole numbers, or expressions that give some."""
    parts = expressions.split_list(value) if isinstance(value, str) else value
    listed = tuple(parts) if isinstance(parts, Sequence) else (parts,)
    extents = tuple(_read_integer(part, 1, MAX_EXTENT) for part in listed)
    if not 1 <= len(extents) <= 3 or None in extents:
        example = 2 if what == "cluster" else 16  # of a cluster, a GPU allows 16 blocks in all
        raise UsageError(
            f"{what} takes one to three whole numbers from 1 to {MAX_EXTENT}, got "
            f"{format_value(value)}: use --{what} {example} or --{what} {example},{example}"
        )
    return tuple(extent for extent in extents if extent is not None)


def _read_integer(value: Any, least: int, most: int) -> int | str | None:
    """Read a whole number in a range, or an expression that names symbols; None for others."""
    try:
        number = int(value, 0) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        if not isinstance(value, str) or not expressions.is_expression(value):
            return None
        if expressions.names_in(value):
            return value.strip()
        try:
            number = expressions.whole(value, {})
        except UsageError:
            return None
    return number if least <= number <= most else None


def _integer_reader(least: int, most: int) -> Callable[[str, Any], int | str]:
    def read(what: str, value: Any) -> int | str:
        number = _read_integer(value, least, most)
        if number is None:
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


def _read_path(what: str, value: Any) -> str:
    """Read a text or, from Python, a path."""
    (path,) = _read_strings(what, fsdecode(value) if isinstance(value, PathLike) else value)
    return path


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


def _read_symbols(what: str, value: Any) -> tuple[str, ...]:
    """Read texts `NAME=EXPRESSION`, or a mapping of names to numbers and expressions."""
    if isinstance(value, Mapping):
        value = [f"{name}={_symbol_text(what, name, number)}" for name, number in value.items()]
    texts = _read_strings(what, value)
    for text in texts:
        name, equals, expression = (part.strip() for part in text.partition("="))
        if not equals or not expression:
            raise UsageError(f"--set {text!r} gives no value: write --set N=1M")
        expressions.check_symbol(name)
        if name in RECORDED_OPTIONS:
            raise UsageError(
                f"--set {text!r}: {name} is the name of a launch option: choose another name"
            )
        if not expressions.is_expression(expression):
            expressions.evaluate(expression, {})  # raises the error that explains it
    return texts


def _symbol_text(what: str, name: Any, number: Any) -> str:
    if isinstance(number, str):
        return number
    try:
        return repr(number if isinstance(number, float) else operator.index(number))
    except (TypeError, ValueError):
        raise UsageError(
            f"{what} takes names with numbers or expressions, got {name!r}: "
            f"{format_value(number)}: write {{'N': '1M'}}"
        ) from None


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


def _read_switch(what: str, value: Any) -> bool:
    """Read `true`, `false` or a Boolean."""
    truth = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
    if not isinstance(truth, bool):
        raise UsageError(
            f"{what} must be true or false, got {format_value(value)}: use --{what}=true"
        )
    return truth


def _read_ptxas_options(what: str, value: Any) -> tuple[str, ...]:
    """Read the options of ptxas: `-O1`, `-O3,-v` or a list of these.

    Others are refused: the emulator would not follow those for caches, and some write files.

    Returns:
        `-O0` to `-O3`, the last one given, or nothing.
    """
    level: tuple[str, ...] = ()
    for option in (part.strip() for text in _read_strings(what, value) for part in text.split(",")):
        if match := _PTXAS_LEVEL.fullmatch(option):
            level = (f"-O{match[1]}",)
        elif option not in _PTXAS_REPORTS:
            raise UsageError(
                f"{what} takes -O0 to -O3, got {format_value(option)}: use -Xptxas -O1"
            )
    return level


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


def _read_constants(what: str, value: Any) -> tuple[str | GivenConstant, ...]:
    """Read texts `NAME=FILL`, or a mapping of variables to fills and arrays."""
    if isinstance(value, Mapping):
        return tuple(python_values.constant_values(name, each) for name, each in value.items())
    if not isinstance(value, (str, list, tuple)):
        raise UsageError(
            f"{what} takes texts or a mapping of variables to values, got {format_value(value)}: "
            "write {'w': array}"
        )
    given = (value,) if isinstance(value, str) else value
    texts = _read_strings(what, [each for each in given if not isinstance(each, GivenConstant)])
    return (*texts, *(each for each in given if isinstance(each, GivenConstant)))


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


RECORDED_OPTIONS = (
    "grid",
    "block",
    "cluster",
    "shared",
    "defines",
    "std",
    "max_registers",
    "flags",
    "args",
    "constants",
)
"""The options that are stored with a run, beside the symbols."""

OPTION_READERS: dict[str, Callable[[str, Any], Any]] = {
    "symbols": _read_symbols,
    "grid": _read_extents,
    "block": _read_extents,
    "cluster": _read_extents,
    "shared": _integer_reader(0, MAX_EXTENT),
    "defines": _read_defines,
    "include": _read_paths,
    "root": _read_path,
    "std": _read_standard,
    "max_registers": _integer_reader(1, MAX_REGISTERS_PER_THREAD),
    "use_fast_math": _read_switch,
    **dict.fromkeys(SWITCHES, _read_switch),
    "ptxas_options": _read_ptxas_options,
    "args": _read_arguments,
    "constants": _read_constants,
    "expect": _read_expected_outputs,
    "reference": _read_reference,
    "tolerance": _read_tolerance,
    "restrict": _read_strings,
}
"""By option, the function that reads and checks its value; it takes the name for messages and the
value."""
