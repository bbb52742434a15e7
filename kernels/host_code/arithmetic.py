"""Arithmetic of host code: operations on values, and conversions between types."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable
from fractions import Fraction

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.formulas import Formula, number
from memlab.kernels.host_code.machine import NOT_NUMBERS, Machine, formula_of, safe, truth_of
from memlab.kernels.host_code.structures import size_of
from memlab.kernels.host_code.values import (
    INTEGER_TYPES,
    REAL_TYPES,
    Address,
    Allocation,
    Container,
    CType,
    FunctionName,
    Null,
    Number,
    Pointer,
    Unresolved,
    Value,
)

MAX_SHIFT = 64
_EXACT: dict[str, Callable[[int, int], int]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "&": operators.and_,
    "|": operators.or_,
    "^": operators.xor,
}


def as_number(machine: Machine, value: Value, name: str = "") -> Number | None:
    """A value as a number; an unresolved one becomes an unknown."""
    value = machine.settled(value)
    if isinstance(value, Number):
        return value
    if isinstance(value, Unresolved):
        return machine.unknown(value.name or name or "value")
    return number_value(0) if isinstance(value, Null) else None


def number_value(value: float | Fraction, kind: str = "int") -> Number:
    """A number of host code."""
    return Number(number(Fraction(value)), kind)


def in_width(value: int, kind: str) -> int:
    """A whole number as a type holds it: without the bits that the type lacks."""
    if kind not in INTEGER_TYPES:
        return value
    bits, signed = INTEGER_TYPES[kind]
    value %= 2**bits
    return value - 2**bits if signed and value >= 2 ** (bits - 1) else value


def _held(value: Number) -> Number:
    """A number as its type holds it; one that is not known is taken to fit."""
    whole = value.formula.whole
    if whole is None or value.divisor is not None:
        return value
    return Number(number(in_width(whole, value.type)), value.type)


def negated(value: Number) -> Number:
    """`-value`."""
    kind = _promoted(value.type)
    return _held(Number(value.formula.scaled(Fraction(-1)), kind, value.divisor))


def inverted(value: Number) -> Value:
    """`~value`."""
    whole = value.formula.whole
    if whole is None or value.divisor is not None:
        return Unresolved("value")
    return _held(Number(number(~whole), _promoted(value.type)))


def combine(machine: Machine, operator: str, left: Value, right: Value) -> Value:
    """The value of an operation on two values."""
    if isinstance(left, Pointer) and isinstance(right, Pointer) and operator == "-":
        return _distance(machine, left, right)
    if isinstance(left, Pointer) and operator in ("+", "-") and not isinstance(right, Pointer):
        return _moved(machine, left, right, operator)
    if isinstance(right, Pointer) and operator == "+":
        return _moved(machine, right, left, operator)
    if operator in ("==", "!="):
        pointers = (Pointer, Address, Null, Container, FunctionName)
        if isinstance(left, pointers) and isinstance(right, (*pointers, Number)):
            equal = isinstance(left, Null) == (isinstance(right, Null | Number))
            return number_value(int(equal == (operator == "==")), "bool")
    if isinstance(left, NOT_NUMBERS) or isinstance(right, NOT_NUMBERS):
        return Unresolved("value")
    if operator in ("==", "!=", "<", ">", "<=", ">="):
        return _compare(operator, left, right)
    first, second = as_number(machine, left), as_number(machine, right)
    if first is None or second is None:
        return Unresolved("value")
    return _arithmetic(operator, first, second)


def _compare(operator: str, left: Value, right: Value) -> Value:
    first, second = formula_of(left), formula_of(right)
    difference = None if first is None or second is None else safe(lambda: first - second)
    value = None if difference is None else difference.constant
    if value is None:
        return Unresolved("condition")
    holds = {
        "==": value == 0,
        "!=": value != 0,
        "<": value < 0,
        ">": value > 0,
        "<=": value <= 0,
        ">=": value >= 0,
    }[operator]
    return number_value(int(holds), "bool")


def _arithmetic(operator: str, left: Number, right: Number) -> Value:
    kind = _common_type(left, right)
    real = left.is_real or right.is_real
    if left.divisor is not None or right.divisor is not None:
        return _with_divisor(operator, left, right, kind)
    a, b = left.formula, right.formula
    if operator == "/" and real:
        quotient = safe(lambda: formulas.exact_quotient(a, b) or number(0)) if b.terms else None
        if b.terms and a.terms and (quotient is None or not quotient.terms):
            return Number(a, kind, b)
        return Unresolved("value") if quotient is None else Number(quotient, kind)
    formula = safe(lambda: _whole_operation(operator, a, b))
    if operator in ("<<", ">>"):
        kind = _promoted(left.type)
    return Unresolved("value") if formula is None else _held(Number(formula, kind))


def _with_divisor(operator: str, left: Number, right: Number, kind: str) -> Value:
    """Operations on a quotient that is no formula: it can be multiplied, and added to."""
    divisor = left.divisor
    if divisor is None or right.divisor is not None:
        return Unresolved("value")
    a, b = left.formula, right.formula
    formula = {
        "*": lambda: a * b,
        "+": lambda: a + b * divisor,
        "-": lambda: a - b * divisor,
    }.get(operator)
    value = None if formula is None else safe(formula)
    return Unresolved("value") if value is None else Number(value, kind, divisor)


def _whole_operation(operator: str, a: Formula, b: Formula) -> Formula:
    known, other = a.whole, b.whole
    if known is not None and other is not None and operator in _EXACT:
        return number(_EXACT[operator](known, other))
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return formulas.floor_quotient(a, b)
        case "%":
            return formulas.remainder(a, b)
        case "<<" if other is not None and 0 <= other < MAX_SHIFT:
            return a * number(2**other)
        case ">>" if other is not None and 0 <= other < MAX_SHIFT:
            return formulas.floor_quotient(a, number(2**other))
        case "&" if known is None and other is not None and other < 0 and _is_power(-other):
            return formulas.floor_quotient(a, number(-other)) * number(-other)
    raise formulas.FormulaError


def _is_power(value: int) -> bool:
    return value & (value - 1) == 0


def _promoted(kind: str) -> str:
    """The type in which a number of a type is computed."""
    return kind if kind in REAL_TYPES or INTEGER_TYPES.get(kind, (0, True))[0] >= 32 else "int"


def _common_type(left: Number, right: Number) -> str:
    """The type of an operation on two numbers."""
    kinds = _promoted(left.type), _promoted(right.type)
    for kind in ("double", "float"):
        if kind in kinds:
            return kind
    reals = [kind for kind in kinds if kind in REAL_TYPES]
    # The wider one; of two as wide, the one without a sign.
    return reals[0] if reals else max(kinds, key=lambda kind: _rank(INTEGER_TYPES[kind]))


def _rank(width: tuple[int, bool]) -> tuple[int, bool]:
    return width[0], not width[1]


def _moved(machine: Machine, pointer: Pointer, steps: Value, operator: str) -> Value:
    size = size_of(machine, pointer.element) if pointer.element is not None else None
    distance = formula_of(as_number(machine, steps) or Unresolved(""))
    if distance is None:
        return pointer
    if not distance.terms:
        return pointer
    if size is None:
        return Pointer(Allocation(pointer.allocation.name, None, True), element=pointer.element)
    scaled = distance.scaled(Fraction(size if operator == "+" else -size))
    offset = safe(lambda: pointer.offset + scaled)
    return pointer if offset is None else Pointer(pointer.allocation, offset, pointer.element)


def _distance(machine: Machine, left: Pointer, right: Pointer) -> Value:
    """The elements between two pointers."""
    size = size_of(machine, left.element) if left.element is not None else None
    if left.allocation is not right.allocation or not size:
        return Unresolved("distance")
    nbytes = safe(lambda: left.offset - right.offset)
    if nbytes is None:
        return Unresolved("distance")
    return Number(nbytes.scaled(Fraction(1, size)), "ptrdiff_t")


def converted(machine: Machine, value: Value, kind: CType | None) -> Value:
    """A number as a type holds it."""
    resolved = machine.resolve(kind)
    if not isinstance(value, Number) or resolved is None or resolved.pointers:
        return value
    if not machine.holds_number(resolved) or resolved.name == "auto":
        return value
    if resolved.name == "bool":
        truth = truth_of(value)
        return value if truth is None else number_value(int(truth), "bool")
    target_is_real = Number(value.formula, resolved.name).is_real
    if target_is_real or not value.is_real:
        return _held(Number(value.formula, resolved.name, value.divisor))
    return truncated(value, resolved.name)


def truncated(value: Number, kind: str) -> Value:
    """A real number as a whole one: rounded toward zero, for sizes down."""
    constant = value.formula.constant
    if value.divisor is None and constant is not None:
        return number_value(math.trunc(constant), kind)
    divisor = value.divisor
    if divisor is not None:
        formula = safe(lambda: formulas.floor_quotient(value.formula, divisor))
    else:
        formula = safe(lambda: formulas.rounded("floor", value.formula))
    return Unresolved("value") if formula is None else Number(formula, kind)


def same_number(left: Number, right: Number) -> bool:
    """Whether two numbers are equal."""
    return left.formula == right.formula and left.divisor == right.divisor


def cast(machine: Machine, value: Value, kind: CType) -> Value:
    """A value as another type."""
    resolved = machine.resolve(kind) or kind
    if resolved.pointers:
        if isinstance(value, Number) and value.formula.whole == 0:
            return Null()
        if isinstance(value, Pointer) and resolved.name != "void":
            return Pointer(value.allocation, value.offset, resolved.pointee)
        return value
    return converted(machine, value, resolved)


def as_pointer(value: Value) -> Value:
    """A vector as a pointer to its first element."""
    if isinstance(value, Container):
        return Pointer(value.allocation, number(0), value.element)
    return value
