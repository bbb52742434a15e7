"""Exact numbers of host code: polynomials over unknown numbers, with quotients rounded up or down.

`n * sizeof(float) / 4` is `n`, and `(n + 255) / 256` is `ceil(n/256)`: the products cancel, and the
usual ways to round up are recognized. A formula is written in the words of launch options.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_TERMS = 8
"""The most terms of a formula, and factors of a term; a longer one tells a reader nothing."""
MAX_NESTING = 4
"""The most roundings inside each other."""
MAX_ATOMS = 64
"""The most unknown numbers inside a rounding."""
MAX_BITS = 256
"""The longest numerator or denominator, bits."""


class FormulaError(Exception):
    """A number that no formula gives: it is too long, or divided by zero."""


@dataclass(frozen=True)
class Unknown:
    """A number that the source does not tell.

    Attributes:
        name: The variable that holds it.
        number: Tells it from others of this name.
    """

    name: str
    number: int


@dataclass(frozen=True)
class Rounded:
    """A function of formulas: `ceil` and `floor` of the quotient of two, `min` or `max` of two."""

    function: Literal["ceil", "floor", "min", "max"]
    first: Formula
    second: Formula

    @property
    def nesting(self) -> int:
        """How many roundings are inside each other, this one among them."""
        return 1 + max(self.first.nesting, self.second.nesting)

    @property
    def atoms(self) -> int:
        """How many unknown numbers and roundings are inside, this one among them."""
        return 1 + self.first.atoms + self.second.atoms


Atom: TypeAlias = Unknown | Rounded
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Formula:
    """A sum of products.

    Attributes:
        terms: Products with their coefficients, none of which is 0, in a fixed order.
    """

    terms: tuple[tuple[Monomial, Fraction], ...]

    @property
    def constant(self) -> Fraction | None:
        """The number, if the formula has no unknowns."""
        if not self.terms:
            return Fraction(0)
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def whole(self) -> int | None:
        """The number, if it is known and whole."""
        value = self.constant
        return value.numerator if value is not None and value.denominator == 1 else None

    @property
    def nesting(self) -> int:
        """How many roundings are inside each other."""
        atoms = (atom for monomial, _ in self.terms for atom in monomial)
        return max((atom.nesting for atom in atoms if isinstance(atom, Rounded)), default=0)

    @property
    def atoms(self) -> int:
        """How many unknown numbers and roundings it has."""
        listed = (atom for monomial, _ in self.terms for atom in monomial)
        return sum(atom.atoms if isinstance(atom, Rounded) else 1 for atom in listed)

    def __add__(self, other: Formula) -> Formula:
        return _rounded_up_sum(_sum([*self.terms, *other.terms]))

    def __sub__(self, other: Formula) -> Formula:
        return self + other.scaled(Fraction(-1))

    def __mul__(self, other: Formula) -> Formula:
        return _sum(
            (tuple(sorted((*left, *right), key=repr)), a * b)
            for left, a in self.terms
            for right, b in other.terms
        )

    def scaled(self, factor: Fraction) -> Formula:
        """Multiply by a number."""
        return _sum((monomial, value * factor) for monomial, value in self.terms)

    def text(self, name: Callable[[Unknown], str]) -> str:
        """Write the formula as a launch option takes it.

        Args:
            name: Names an unknown number.
        """
        written = ""
        for monomial, value in sorted(self.terms, key=lambda term: term[1] < 0):
            sign = "-" if value < 0 else "+"
            term = _term_text(monomial, abs(value), name)
            if written:
                written += f" {sign} {term}"
            else:
                written = f"-{term}" if value < 0 else term
        return written or "0"


def number(value: int | Fraction) -> Formula:
    """The formula of a number.

    Raises:
        FormulaError: It is too long.
    """
    value = Fraction(value)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise FormulaError
    return Formula((((), value),) if value else ())


def unknown(name: str, serial: int) -> Formula:
    """The formula of an unknown number."""
    return Formula((((Unknown(name, serial),), Fraction(1)),))


def exact_quotient(dividend: Formula, divisor: Formula) -> Formula | None:
    """Divide, where the quotient is a formula: by a number, or by a product in every term.

    Raises:
        FormulaError: The divisor is 0.
    """
    if not divisor.terms:
        raise FormulaError
    if len(divisor.terms) != 1:
        return number(1) if dividend == divisor else None
    factors, scale = divisor.terms[0]
    terms = []
    for monomial, value in dividend.terms:
        rest = list(monomial)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        terms.append((tuple(rest), value / scale))
    return _sum(terms)


def _whole_quotient(
    dividend: Formula, divisor: Formula, rounding: Callable[[Fraction], int]
) -> Formula | None:
    """The quotient that needs no symbol for its rounding; None if there is none."""
    exact = exact_quotient(dividend, divisor)
    if exact is None:
        return None
    if exact.constant is not None:
        return number(rounding(exact.constant))
    return exact if _is_integral(exact) else None


def floor_quotient(dividend: Formula, divisor: Formula) -> Formula:
    """Divide whole numbers as C++ does: toward zero; unknown numbers are sizes, so down.

    Raises:
        FormulaError: The divisor is 0.
    """
    whole = _whole_quotient(dividend, divisor, math.trunc)
    if whole is not None:
        return whole
    lowered = dividend - divisor + number(1)  # (n + b - 1) / b is n / b rounded up
    if lowered.constant is None and len(lowered.terms) < len(dividend.terms):
        return ceil_quotient(lowered, divisor)
    return _atom("floor", dividend, divisor)


def ceil_quotient(dividend: Formula, divisor: Formula) -> Formula:
    """Divide and round up.

    Raises:
        FormulaError: The divisor is 0.
    """
    whole = _whole_quotient(dividend, divisor, math.ceil)
    if whole is not None:
        return whole
    return _atom("ceil", dividend, divisor)


def rounded(function: Literal["ceil", "floor"], value: Formula) -> Formula:
    """Round a formula whose coefficients may be fractions, such as `n / 256.0`."""
    scale = math.lcm(*(coefficient.denominator for _, coefficient in value.terms), 1)
    whole, divisor = value.scaled(Fraction(scale)), number(scale)
    return ceil_quotient(whole, divisor) if function == "ceil" else _floor_of_sizes(whole, divisor)


def remainder(dividend: Formula, divisor: Formula) -> Formula:
    """The remainder of whole numbers.

    Raises:
        FormulaError: The divisor is 0.
    """
    return dividend - floor_quotient(dividend, divisor) * divisor


def extreme(function: Literal["min", "max"], first: Formula, second: Formula) -> Formula:
    """The smaller or the larger of two."""
    left, right = first.constant, second.constant
    if left is not None and right is not None:
        return number(min(left, right) if function == "min" else max(left, right))
    return first if first == second else _atom(function, first, second)


def _floor_of_sizes(dividend: Formula, divisor: Formula) -> Formula:
    exact = exact_quotient(dividend, divisor)
    if exact is not None and exact.constant is not None:
        return number(math.floor(exact.constant))
    return exact if exact is not None and _is_integral(exact) else _atom("floor", dividend, divisor)


def _is_integral(value: Formula) -> bool:
    return all(coefficient.denominator == 1 for _, coefficient in value.terms)


def _atom(
    function: Literal["ceil", "floor", "min", "max"], first: Formula, second: Formula
) -> Formula:
    atom = Rounded(function, first, second)
    if atom.nesting > MAX_NESTING or atom.atoms > MAX_ATOMS:
        raise FormulaError
    return _sum([((atom,), Fraction(1))])


def _rounded_up_sum(value: Formula) -> Formula:
    """Write `(n - 1) / b + 1` as `n / b` rounded up."""
    for monomial, coefficient in value.terms:
        match monomial:
            case (Rounded("floor", dividend, divisor),) if coefficient == 1:
                raised = dividend + number(1)
                if len(raised.terms) < len(dividend.terms):
                    rest = _sum([*value.terms, (monomial, Fraction(-1)), ((), Fraction(-1))])
                    if len(rest.terms) < len(value.terms) - 1:
                        return rest + ceil_quotient(raised, divisor)
    return value


def _sum(terms: Iterable[tuple[Monomial, Fraction]]) -> Formula:
    sums: dict[Monomial, Fraction] = {}
    for monomial, value in terms:
        sums[monomial] = sums.get(monomial, Fraction(0)) + value
    kept = [(monomial, value) for monomial, value in sums.items() if value]
    if len(kept) > MAX_TERMS or any(
        max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS
        or len(monomial) > MAX_TERMS
        for monomial, value in kept
    ):
        raise FormulaError
    return Formula(tuple(sorted(kept, key=lambda term: (-len(term[0]), repr(term[0])))))


def _term_text(monomial: Monomial, value: Fraction, name: Callable[[Unknown], str]) -> str:
    factors = [_atom_text(atom, name) for atom in monomial]
    if not factors:
        whole = value.denominator == 1
        return str(value.numerator) if whole else _fraction_text(value)
    if value.numerator != 1:
        factors.insert(0, str(value.numerator))
    product = "*".join(factors)
    return product if value.denominator == 1 else f"{product}/{value.denominator}"


def _fraction_text(value: Fraction) -> str:
    try:
        return repr(float(value))
    except OverflowError:
        return f"{value.numerator}/{value.denominator}"


def _atom_text(atom: Atom, name: Callable[[Unknown], str]) -> str:
    if isinstance(atom, Unknown):
        return name(atom)
    first, second = atom.first.text(name), atom.second.text(name)
    if atom.function in ("min", "max"):
        return f"{atom.function}({first}, {second})"
    first = f"({first})" if len(atom.first.terms) > 1 else first
    plain = atom.second.constant is not None or second.isidentifier()
    return f"{atom.function}({first}/{second if plain else f'({second})'})"
