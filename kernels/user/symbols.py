"""The symbols of a user kernel: its options with every expression computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from memlab.errors import UsageError
from memlab.kernels.user import expressions
from memlab.kernels.user.arguments.fills import is_number
from memlab.kernels.user.arguments.parsing import SPECIFICATION_PATTERN
from memlab.kernels.user.arguments.specifications import (
    MAX_FLOATS,
    NUMPY_DTYPES,
    POINTERS,
    STRUCTURE,
    TENSOR_MAP,
)
from memlab.kernels.user.arguments.views import VIEW_KINDS
from memlab.kernels.user.launch_options import OPTION_READERS

if TYPE_CHECKING:
    from memlab.kernels.user.expressions import Number
    from memlab.kernels.user.kernel import UserKernel

_FILL_NAMES = ("random", "zeros", "ones", "arange")
_RANGE_NAMES = ("randint", "uniform")
_EXTENTS = re.compile(r"\[([^\[\]]*)\]")
_TEMPLATE_WORD = re.compile(r"[A-Za-z_]\w*")

Result = TypeVar("Result")
Compute = Callable[[str], str]
"""Computes one expression and writes the number."""


def evaluated(kernel: UserKernel) -> UserKernel:
    """Compute the expressions in a kernel's options.

    Grid, block, shared memory, registers, arguments and fills may use the symbols and the macros
    whose values are numbers. A macro's value, and an argument of the template, is computed where
    all its names are symbols; otherwise it is C++ and stays as it is.

    Returns:
        The kernel with numbers in place of the expressions.

    Raises:
        UsageError: An expression cannot be computed, does not suit its option, or a restriction
            does not hold; the message quotes it.
    """
    symbols = expressions.symbol_values(_definitions(kernel))
    computed = replace(
        kernel,
        symbols=tuple(
            f"{name}={expressions.number_text(value)}" for name, value in symbols.items()
        ),
        entry=_evaluate_template(kernel.entry, symbols),
        defines=tuple(_evaluate_define(text, symbols) for text in kernel.defines),
    )
    values = symbol_values(computed)
    if broken := _broken_restriction(kernel, values):
        raise UsageError(
            f"the launch breaks the restriction {broken}: change a symbol, or the restriction"
        )
    numbers = {
        name: _evaluate_option(name, getattr(kernel, name), values)
        for name in ("grid", "block", "cluster", "shared", "max_registers")
    }
    args = tuple(
        _located(f"argument {number}", evaluate_argument, text, values)
        if isinstance(text, str)
        else text
        for number, text in enumerate(kernel.args)
    )
    constants = tuple(
        _located(f"--const {text!r}", _evaluate_constant, text, values)
        if isinstance(text, str)
        else text
        for text in kernel.constants
    )
    return replace(computed, **numbers, args=args, constants=constants)


def with_template_values(kernel: UserKernel) -> UserKernel:
    """Put the values of symbols into the arguments of a kernel's template.

    Raises:
        UsageError: A symbol cannot be computed.
    """
    symbols = expressions.symbol_values(_definitions(kernel))
    return replace(kernel, entry=_evaluate_template(kernel.entry, symbols))


def symbol_values(kernel: UserKernel) -> dict[str, Number]:
    """The values that expressions may name: the symbols, and the macros that are numbers.

    Raises:
        UsageError: A symbol cannot be computed.
    """
    symbols = expressions.symbol_values(_definitions(kernel))
    macros = {}
    for text in kernel.defines:
        name, _, value = _evaluate_define(text, symbols).partition("=")
        if expressions.is_expression(value) and not expressions.names_in(value):
            macros[name] = expressions.evaluate(value, {})
    return {**macros, **symbols}


def broken_restriction(kernel: UserKernel) -> str:
    """The first restriction that does not hold, with the values; empty if all hold.

    Raises:
        UsageError: A symbol or a restriction cannot be computed.
    """
    return _broken_restriction(kernel, symbol_values(kernel)) if kernel.restrict else ""


def _broken_restriction(kernel: UserKernel, values: Mapping[str, Number]) -> str:
    for condition in kernel.restrict:
        if not expressions.holds(condition, values):
            used = ", ".join(
                f"{name}={expressions.number_text(values[name])}"
                for name in expressions.names_in(condition)
            )
            return f"{condition!r} ({used})"
    return ""


def recorded_symbols(kernel: UserKernel) -> dict[str, int | str]:
    """The symbols of an evaluated kernel as they are stored with a run."""
    values = expressions.symbol_values(_definitions(kernel))
    return {
        name: expressions.number_text(value) if isinstance(value, Fraction) else value
        for name, value in values.items()
    }


def evaluate_argument(text: str, values: Mapping[str, Number]) -> str:
    """Compute the expressions in the text of an argument: `f32[N]` becomes `f32[1048576]`.

    Text that is no argument is returned as it is, for `parse_specification` to reject.

    Raises:
        UsageError: An expression cannot be computed, or its number does not suit the type.
    """
    if text.strip().startswith("@"):
        name, plus, start = text.partition("+")
        return f"{name}+{_writers(values)[0](start)}" if plus else text
    match = SPECIFICATION_PATTERN.fullmatch(text)
    kind = match["type"] if match else ""
    if match and kind == POINTERS and match["shape"] is not None and match["value"] is not None:
        head = f"{text[: match.end('type')]}{_evaluate_extents(match, values)}"
        return f"{head}={_each(match['value'], lambda part: _evaluate_member(part, values))}"
    if match and (kind in NUMPY_DTYPES or (kind == STRUCTURE and match["shape"] is not None)):
        whole, real = _writers(values)
        number = real if kind in (*MAX_FLOATS, STRUCTURE) else whole
        head, value = text[: match.end("type")], match["value"]
        if match["shape"] is not None:
            head += _evaluate_extents(match, values)
            if value is not None and kind == STRUCTURE:
                value = _evaluate_structures(value, values)
            elif value is not None:
                value = _evaluate_fills(value, number)
        elif value is not None:
            value = number(value)
        return head if value is None else f"{head}={value}"
    if match and kind in VIEW_KINDS and (bracket := _EXTENTS.search(text)):
        extents = _each(bracket[1], _writers(values)[0])
        return f"{text[: bracket.start(1)]}{extents}{text[bracket.end(1) :]}"
    if match and kind == TENSOR_MAP:
        whole, _ = _writers(values)
        return _EXTENTS.sub(lambda bracket: f"[{_each(bracket[1], whole)}]", text)
    if match and kind == STRUCTURE and match["value"] is not None:
        return f"{STRUCTURE}={_each(match['value'], lambda part: _evaluate_member(part, values))}"
    if is_number(text) or text.strip() == "null" or not expressions.is_expression(text):
        return text
    if _TEMPLATE_WORD.fullmatch(text.strip()) and text.strip() not in values:
        return text
    return expressions.number_text(expressions.evaluate(text, values))


def _writers(values: Mapping[str, Number]) -> tuple[Compute, Compute]:
    """Functions that compute a whole number and any number; text that is neither stays."""

    def whole(text: str) -> str:
        if is_number(text) or not expressions.is_expression(text):
            return text
        return str(expressions.whole(text.strip(), values))

    def real(text: str) -> str:
        if is_number(text) or not expressions.is_expression(text):
            return text
        return expressions.number_text(expressions.evaluate(text.strip(), values))

    return whole, real


def _evaluate_extents(match: re.Match[str], values: Mapping[str, Number]) -> str:
    """The extents of an array, and the element that its pointer points to: `[1030]+3`."""
    whole, _ = _writers(values)
    start = "" if match["start"] is None else f"+{whole(match['start'])}"
    return f"[{_each(match['shape'], whole)}]{start}"


def _each(texts: str, compute: Compute) -> str:
    return ",".join(compute(part) for part in expressions.split_list(texts))


def _evaluate_member(text: str, values: Mapping[str, Number]) -> str:
    """Compute the expressions in a member of a structure: a number, or an array for a pointer."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        inner = _each(text[1:-1], lambda part: _evaluate_member(part, values))
        return f"({inner})"
    match = SPECIFICATION_PATTERN.fullmatch(text)
    is_array = match and (match["shape"] is not None or match["type"] in (*VIEW_KINDS, TENSOR_MAP))
    if text == "null" or text.startswith("@") or is_array:
        return evaluate_argument(text, values)
    if text in ("zeros", "ones"):  # of a whole structure
        return text
    return _writers(values)[1](text)


def _evaluate_structures(text: str, values: Mapping[str, Number]) -> str:
    """Compute the expressions in the fills of structures, or in structures given one by one."""
    if text.strip().startswith("@") and len(expressions.split_list(text)) == 1:
        return text
    number = _writers(values)[1]

    def compute(part: str) -> str:
        match = SPECIFICATION_PATTERN.fullmatch(part)
        is_pointer = part.startswith(("(", "@")) or part == "null" or (match and match["shape"])
        return _evaluate_member(part, values) if is_pointer else _evaluate_fill(part, number)

    return _each(text, compute)


def _evaluate_fills(text: str, number: Compute) -> str:
    """Compute the expressions in a fill, or in the fills of a structure's members."""
    if text.strip().startswith("@"):
        return text
    return _each(text, lambda part: _evaluate_fill(part, number))


def _evaluate_fill(text: str, number: Compute) -> str:
    name, colon, bounds = text.strip().partition(":")
    if name in _FILL_NAMES or name.startswith("@"):
        return text
    if name in _RANGE_NAMES:
        low, second, high = bounds.partition(":")
        return f"{name}{colon}{number(low)}{second}{number(high)}"
    return number(text)


def _evaluate_constant(text: str, values: Mapping[str, Number]) -> str:
    name, equals, fill = text.partition("=")
    return f"{name}{equals}{_evaluate_fills(fill, _writers(values)[1])}" if equals else text


def _evaluate_option(name: str, value: Any, values: Mapping[str, Number]) -> Any:
    """Compute an option whose values are whole numbers, and check its range again."""
    parts = value if isinstance(value, tuple) else (value,)
    if not any(isinstance(part, str) for part in parts):
        return value
    option = name.replace("_", "-")
    numbers = tuple(
        _located(f"--{option}", expressions.whole, part, values) if isinstance(part, str) else part
        for part in parts
    )
    try:
        return OPTION_READERS[name](option, numbers if isinstance(value, tuple) else numbers[0])
    except UsageError as error:
        written = ",".join(map(str, parts))
        raise UsageError(f"--{option} {written!r}: {error}") from None


def _evaluate_define(text: str, symbols: Mapping[str, Number]) -> str:
    name, equals, value = text.partition("=")
    names = expressions.names_in(value)
    if names and set(names) <= set(symbols) and expressions.is_expression(value):
        number = expressions.evaluate(value, symbols)
        return f"{name}{equals}{expressions.number_text(number)}"
    return text


def _evaluate_template(entry: str, symbols: Mapping[str, Number]) -> str:
    """Put the values of symbols into the arguments of a template: `sgemm<T>`."""
    name, bracket, arguments = entry.partition("<")

    def value(match: re.Match[str]) -> str:
        known = symbols.get(match[0])
        return match[0] if known is None else expressions.number_text(known)

    return name + bracket + _TEMPLATE_WORD.sub(value, arguments)


def _definitions(kernel: UserKernel) -> dict[str, str]:
    """The texts of the symbols, by name; of a name given twice, the last counts."""
    pairs = (text.partition("=") for text in kernel.symbols)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _located(
    place: str,
    compute: Callable[[str, Mapping[str, Number]], Result],
    text: str,
    values: Mapping[str, Number],
) -> Result:
    """Compute a text; an error names its place."""
    try:
        return compute(text, values)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
