"""Expressions over symbols in launch options: `ceil(N/B)`, `2*N`, `1M`, `B*TILE <= 1024`.

An expression is data: Python's parser reads it, and the few kinds of nodes below are computed here;
nothing is executed. Numbers are exact (integers and fractions), and their size is bounded.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import TypeAlias

from memlab.errors import UsageError, suggest_nearest

Number: TypeAlias = int | Fraction
"""An exact number; a `Fraction` is never whole."""

SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}
"""The factors of the binary suffixes: `4M` is 4194304."""

MAX_CHARACTERS = 1000
"""The longest expression."""
MAX_BITS = 4096
"""The longest numerator or denominator, bits: sizes have 64, the largest double 1024."""

_SUFFIXED = re.compile(r"(?<![\w.])(\d[\d_]*(?:\.\d+)?)([KMG])\b")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRAMMAR = "use numbers (4M), symbols, + - * / // % **, parentheses, ceil, floor, min and max"

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: dict[type[ast.unaryop], int] = {ast.UAdd: 1, ast.USub: -1}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ROUNDINGS: dict[str, Callable[[Number], int]] = {"ceil": math.ceil, "floor": math.floor}
_EXTREMES: dict[str, Callable[..., Number]] = {"min": min, "max": max}

FUNCTIONS = (*_ROUNDINGS, *_EXTREMES)
"""The functions of expressions."""


def evaluate(text: str, symbols: Mapping[str, Number]) -> Number:
    """Compute an expression.

    Args:
        text: The expression.
        symbols: The values of its symbols, by name.

    Raises:
        UsageError: It is no expression, names an unknown symbol, divides by zero, or gives a
            number that is too large; the message quotes it.
    """
    tree = _parse(text)
    try:
        return _number(tree, symbols, text)
    except ZeroDivisionError:
        raise UsageError(f"{text!r} divides by zero: change it or its symbols") from None


def holds(text: str, symbols: Mapping[str, Number]) -> bool:
    """Decide a condition: comparisons of expressions, joined by `and`, `or` and `not`.

    Args:
        text: The condition, such as `B*TILE <= 1024 and N % B == 0`.
        symbols: The values of its symbols, by name.

    Raises:
        UsageError: As `evaluate`, or it compares nothing.
    """
    tree = _parse(text)
    for name in names_in(text):  # also where an `or` is decided before it is reached
        if name not in symbols:
            raise _unknown_symbol_error(name, symbols, text)
    try:
        return _decide(tree, symbols, text)
    except ZeroDivisionError:
        raise UsageError(f"{text!r} divides by zero: change it or its symbols") from None


def names_in(text: str) -> tuple[str, ...]:
    """The symbols that an expression or condition names, in order; empty if it is neither."""
    try:
        tree = _parse(text)
    except UsageError:
        return ()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    named = (
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    )
    return tuple(dict.fromkeys(named))


def is_expression(text: str) -> bool:
    """Whether a text can be computed once its symbols are known."""
    try:
        tree = _parse(text)
    except UsageError:
        return False
    called = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return all(_is_allowed(node, id(node) in called) for node in ast.walk(tree))


def _is_allowed(node: ast.AST, called: bool) -> bool:
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()) | ast.Pow() | ast.Load() | ast.BinOp():
            return True
        case ast.UnaryOp() | ast.Call(keywords=[]):
            return True
        case ast.Name(id=name):
            return called == (name in FUNCTIONS)
    return type(node) in _OPERATORS or type(node) in _SIGNS


def split_list(text: str) -> list[str]:
    """Split a list at its commas, but for those in parentheses, brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def symbol_values(definitions: Mapping[str, str]) -> dict[str, Number]:
    """Compute symbols; a definition may name other symbols.

    Args:
        definitions: Expressions by the symbols' names.

    Returns:
        The numbers, by name, in the order of the definitions.

    Raises:
        UsageError: A name is not one, or a definition cannot be computed or names itself.
    """
    values: dict[str, Number] = {}

    def compute(name: str, using: tuple[str, ...]) -> Number:
        if name in using:
            raise UsageError(f"the symbol {name} needs itself: {' -> '.join((*using, name))}")
        if name not in values:
            text = definitions[name]
            for other in names_in(text):
                if other in definitions:
                    compute(other, (*using, name))
            try:
                values[name] = evaluate(text, values)
            except UsageError as error:
                raise UsageError(f"symbol {name}: {error}") from None
        return values[name]

    for name in definitions:
        check_symbol(name)
    return {name: compute(name, ()) for name in definitions}


def check_symbol(name: str) -> None:
    """Refuse a text that cannot name a symbol.

    Raises:
        UsageError: It is no C++ name, or the name of a function of expressions.
    """
    if not _SYMBOL.fullmatch(name):
        raise UsageError(f"{name!r} names no symbol: use letters, digits and _, as in N=1M")
    if name in FUNCTIONS or name in ("and", "or", "not"):
        raise UsageError(f"{name} has a meaning in expressions: choose another name for the symbol")


def whole(text: str, symbols: Mapping[str, Number]) -> int:
    """Compute an expression that must be a whole number.

    Raises:
        UsageError: As `evaluate`, or the number is not whole.
    """
    value = evaluate(text, symbols)
    if isinstance(value, Fraction):
        raise UsageError(
            f"{text!r} is {number_text(value)}, not a whole number: round it, as in ceil({text})"
        )
    return value


def whole_or_text(text: str) -> int | str:
    """The whole number of an expression without symbols, such as `4M`; another text as it is."""
    try:
        return int(text)
    except ValueError:
        pass
    if is_expression(text) and not names_in(text):
        with suppress(UsageError):
            value = evaluate(text, {})
            if isinstance(value, int):
                return value
    return text


def number_text(value: Number) -> str:
    """Write a number; a fraction as the nearest double.

    Raises:
        UsageError: The fraction is beyond the doubles.
    """
    if isinstance(value, int):
        return str(value)
    try:
        return repr(float(value))
    except OverflowError:
        raise UsageError("a number is beyond the largest double: use smaller numbers") from None


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"an expression of {len(text)} characters: use at most {MAX_CHARACTERS}"
        ) from None
    spelled = _SUFFIXED.sub(lambda match: f"({match[1]}*{SUFFIXES[match[2]]})", text.strip())
    try:
        return ast.parse(spelled, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UsageError(f"{text!r} is no expression: {_GRAMMAR}") from None


def _number(node: ast.expr, symbols: Mapping[str, Number], text: str) -> Number:
    match node:
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            pass
        case ast.Constant(value=int() as value):
            return _bounded(value, text)
        case ast.Constant(value=float() as value) if math.isfinite(value):
            # As it is written: the double nearest to 0.1 is not 0.1.
            return _bounded(Fraction(repr(value)), text)
        case ast.Name(id=name):
            if name not in symbols:
                raise _unknown_symbol_error(name, symbols, text)
            return symbols[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)] * _number(operand, symbols, text)
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            return _power(_number(base, symbols, text), _number(exponent, symbols, text), text)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            first, second = _number(left, symbols, text), _number(right, symbols, text)
            return _bounded(_OPERATORS[type(sign)](Fraction(first), Fraction(second)), text)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            values = [_number(argument, symbols, text) for argument in arguments]
            if name in _ROUNDINGS and len(values) == 1:
                return _ROUNDINGS[name](values[0])
            if name in _EXTREMES and values:
                return _EXTREMES[name](*values) if len(values) > 1 else values[0]
    raise UsageError(f"{text!r} is no expression: {_GRAMMAR}")


def _power(base: Number, exponent: Number, text: str) -> Number:
    if isinstance(exponent, Fraction):
        raise UsageError(f"{text!r} has an exponent that is not a whole number: use one")
    parts = Fraction(base)
    bits = max(abs(parts.numerator), parts.denominator).bit_length()
    if abs(exponent) > MAX_BITS or bits * abs(exponent) > 2 * MAX_BITS:
        raise _too_large_error(text)
    return _bounded(parts**exponent, text)


def _bounded(value: Fraction | int, text: str) -> Number:
    """Return a whole number as an integer; refuse a long one."""
    parts = Fraction(value)
    if max(abs(parts.numerator), parts.denominator).bit_length() > MAX_BITS:
        raise _too_large_error(text)
    return parts.numerator if parts.denominator == 1 else parts


def _decide(node: ast.expr, symbols: Mapping[str, Number], text: str) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_decide(part, symbols, text) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_decide(part, symbols, text) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _decide(operand, symbols, text)
        case ast.Compare(left=left, ops=signs, comparators=others) if all(
            type(sign) in _COMPARISONS for sign in signs
        ):
            values = [_number(part, symbols, text) for part in (left, *others)]
            pairs: Iterator[tuple[ast.cmpop, Number, Number]] = zip(
                signs, values, values[1:], strict=False
            )
            return all(_COMPARISONS[type(sign)](first, second) for sign, first, second in pairs)
    raise UsageError(
        f"{text!r} is no condition: compare numbers and symbols, as in 'B*TILE <= 1024'"
    )


def _unknown_symbol_error(name: str, symbols: Mapping[str, Number], text: str) -> UsageError:
    known = suggest_nearest(name, symbols) if symbols else "none is set"
    return UsageError(
        f"{text!r} names the unknown symbol {name!r} ({known}): give it with --set {name}=VALUE"
    )


def _too_large_error(text: str) -> UsageError:
    return UsageError(f"{text!r} is a number of more than {MAX_BITS} bits: use smaller numbers")
